package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
)

// TokenTTL is how long a valid token counts as valid without another review.
const TokenTTL = 10 * time.Second

// Options configures an [Access].
type Options struct {
	// Audiences are the accepted audiences; a token must be for at least one of them. None
	// means those of the API server.
	Audiences []string
	// TokenTTL, AllowTTL and DenyTTL replace [TokenTTL], [AllowTTL] and [DenyTTL] unless
	// they are zero.
	TokenTTL, AllowTTL, DenyTTL time.Duration
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Access authenticates callers by TokenReview and authorizes them by SubjectAccessReview. It
// is safe for concurrent use and starts no goroutine that outlives a call.
type Access struct {
	audiences     authenticator.Audiences
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// New returns an access that asks the API server of config, with the identity of config.
// That needs the verb create on tokenreviews.authentication.k8s.io and on
// subjectaccessreviews.authorization.k8s.io. httpClient must have been made from config.
func New(config *rest.Config, httpClient *http.Client, options Options) (*Access, error) {
	setDefault(&options.TokenTTL, TokenTTL)
	setDefault(&options.AllowTTL, AllowTTL)
	setDefault(&options.DenyTTL, DenyTTL)
	tokens, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("authenticate by TokenReview: %w", err)
	}
	rights, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("authorize by SubjectAccessReview: %w", err)
	}
	access := &Access{audiences: options.Audiences}
	access.authenticator, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:  tokens,
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      reviewBackoff(),
		CacheTTL:                 options.TokenTTL,
		APIAudiences:             access.audiences,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authenticate by TokenReview: %w", err)
	}
	access.authorizer, err = newAuthorizer(rights, options.AllowTTL, options.DenyTTL)
	return access, err
}

func setDefault(ttl *time.Duration, value time.Duration) {
	if *ttl == 0 {
		*ttl = value
	}
}

var (
	errNoToken  = fmt.Errorf("%w: send a bearer token in the Authorization header", lock.ErrUnauthenticated)
	errBadToken = fmt.Errorf("%w: the bearer token is not valid here, or no longer valid", lock.ErrUnauthenticated)
	errActingAs = fmt.Errorf("%w: the Impersonate headers are not accepted; send a token of the identity itself", lock.ErrInvalid)
)

// Authenticate returns the user who has sent the request. The identity comes from one bearer token in
// the Authorization header, and from nothing else in the request.
func (a *Access) Authenticate(request *http.Request) (user.Info, error) {
	credentials, err := credentialsIn(request.Header)
	if err != nil {
		return nil, err
	}
	ctx := request.Context()
	if len(a.audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, a.audiences)
	}
	// The library also looks for tokens in other headers.
	alone := (&http.Request{Header: http.Header{"Authorization": {credentials}}}).WithContext(ctx)
	response, ok, err := a.authenticator.AuthenticateRequest(alone)
	switch {
	case ok && err == nil && response.User.GetName() != "":
		return response.User, nil
	case isUnanswered(err):
		return nil, fmt.Errorf("%w: review a token: %w", lock.ErrUnavailable, err)
	}
	return nil, errBadToken
}

// credentialsIn returns the only Authorization header, which must contain a bearer token.
func credentialsIn(header http.Header) (string, error) {
	for name := range header {
		if strings.HasPrefix(name, "Impersonate-") {
			// A caller that sends one expects to act as another user.
			return "", errActingAs
		}
	}
	given := header.Values("Authorization")
	if len(given) != 1 {
		return "", errNoToken
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " ,") {
		return "", errNoToken
	}
	return given[0], nil
}

// isUnanswered reports whether err says that the API server could not review a token. Other
// errors say that it refused the token.
func isUnanswered(err error) bool {
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return slices.ContainsFunc(aggregate.Errors(), isUnanswered)
	}
	return isRequestError(err)
}

// Authorize returns nil if the user has the right.
func (a *Access) Authorize(ctx context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	decision, _, err := a.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            who,
		Verb:            right.Verb,
		Namespace:       right.Namespace,
		APIGroup:        right.Group,
		APIVersion:      right.Version,
		Resource:        right.Resource,
		Name:            right.Name,
		ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow && err == nil:
		return nil
	case err != nil:
		return fmt.Errorf("%w: review the rights of %q: %w", lock.ErrUnavailable, who.GetName(), err)
	}
	// The error leaves the reason out: it may name roles that the caller must not see.
	return fmt.Errorf("%w: %q lacks the verb %q on %s.%s in the namespace %q",
		lock.ErrForbidden, who.GetName(), right.Verb, right.Resource, right.Group, right.Namespace)
}
