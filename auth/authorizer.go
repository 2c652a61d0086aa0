package auth

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	// AllowTTL is how long a granted right counts as granted without another review.
	AllowTTL = 10 * time.Second
	// DenyTTL is how long a missing right counts as missing without another review. It is
	// short: a user who has just got the right tries again.
	DenyTTL = 2 * time.Second
)

// reviewTimeout bounds one review by the API server, repetitions included.
const reviewTimeout = 5 * time.Second

// reviewBackoff repeats a review that the API server did not answer. It gives up soon, since
// a caller waits.
func reviewBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}
}

// NewAuthorizer returns an authorizer that asks the API server of config by
// SubjectAccessReview, with the identity of config, which needs the verb create on
// subjectaccessreviews.authorization.k8s.io. An answer is remembered for [AllowTTL] or
// [DenyTTL]. No opinion means no. With an error the right is not known, and must not be
// taken for granted. httpClient must have been made from config. The authorizer is safe
// for concurrent use, and does not bound the time that an answer takes.
func NewAuthorizer(config *rest.Config, httpClient *http.Client) (authorizer.Authorizer, error) {
	client, err := authorizationv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("authorize by SubjectAccessReview: %w", err)
	}
	return newAuthorizer(client, AllowTTL, DenyTTL)
}

func newAuthorizer(client authorizationv1.AuthorizationV1Interface, allowTTL, denyTTL time.Duration) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             allowTTL,
		DenyCacheTTL:              denyTTL,
		WebhookRetryBackoff:       reviewBackoff(),
	}.New()
}
