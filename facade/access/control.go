package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/network"
)

// Options configures a [Control].
type Options struct {
	// Access tells who calls and what they may do. Nil means that all callers are
	// [Anonymous] and may do everything in Namespace.
	Access Access
	// Namespace is the only one that is served if Access is nil, and required then.
	// Otherwise it is ignored, and each call is about a namespace of its own.
	Namespace string
	// MaxAuthFailures is how many invalid tokens one network may present at once, and again every ten
	// seconds. Zero means 100.
	MaxAuthFailures int
	// Clock tells the time. Nil means the real clock.
	Clock clock.PassiveClock
}

// Control decides about callers. All doors share one, and so count failed attempts to
// authenticate together. It is safe for concurrent use.
type Control struct {
	access    Access
	namespace string
	failures  *authFailureLimiter
	reviews   *reviews
}

// New returns a control, or an error if neither Access nor Namespace is set.
func New(options Options) (*Control, error) {
	if options.Access == nil && options.Namespace == "" {
		return nil, errors.New("facade: Namespace or Access is required")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Control{
		access: options.Access, namespace: options.Namespace,
		failures: newAuthFailureLimiter(options.Clock, cmp.Or(options.MaxAuthFailures, maxFailures)), reviews: newReviews(options.Clock),
	}, nil
}

// errAuthFailures refuses a network from which too many invalid tokens came.
var errAuthFailures = &limits.Error{IsCaller: true, Limit: "auth_failures", Reason: "Too many requests without a valid bearer token came from this network"}

// errManyCredentials refuses several Authorization headers, before the first of them counts as the caller's.
var errManyCredentials = fmt.Errorf("%w: send one bearer token in one Authorization header", lock.ErrUnauthenticated)

var anonymous user.Info = &user.DefaultInfo{Name: Anonymous}

// AuthenticatesCallers reports whether callers have identities of their own.
func (c *Control) AuthenticatesCallers() bool { return c.access != nil }

// Authenticate returns the caller who has sent the request, without a namespace. It removes
// the token from the header of the request, so that it goes no further. The error is a
// [*limits.Error] or matches [lock.ErrUnauthenticated], [lock.ErrInvalid] or
// [lock.ErrUnavailable].
func (c *Control) Authenticate(r *http.Request) (Caller, error) {
	if c.access == nil {
		return Caller{User: anonymous}, nil
	}
	defer r.Header.Del("Authorization")
	if len(r.Header.Values("Authorization")) > 1 {
		return Caller{}, errManyCredentials
	}
	attempt, ok := c.failures.begin(network.Of(r.RemoteAddr), r.Header.Get("Authorization"))
	if !ok {
		return Caller{}, errAuthFailures
	}
	who, err := c.access.Authenticate(r)
	switch {
	case err == nil:
		attempt.succeed()
		return Caller{User: who, IsAuthenticated: true}, nil
	case errors.Is(err, lock.ErrUnauthenticated):
		if !attempt.fail() {
			return Caller{}, fmt.Errorf("%w: a bearer token that was valid a moment ago was refused; %w", lock.ErrUnavailable, lock.ErrNothingDone)
		}
		return Caller{}, err
	case errors.Is(err, lock.ErrInvalid):
		attempt.refund()
		return Caller{}, err
	case r.Context().Err() != nil:
		// The API server is asked all the same.
		attempt.leave()
	default:
		attempt.refund()
	}
	return Caller{}, fmt.Errorf("%w: authenticate a caller: %w; %w", lock.ErrUnavailable, err, lock.ErrNothingDone)
}

// IsKnown reports whether the credentials of a request were valid when they were last presented. That is no
// authentication: they may have ended since.
func (c *Control) IsKnown(r *http.Request) bool {
	return c.access != nil && c.failures.isKnown(r.Header.Get("Authorization"))
}

// Authorize returns nil if the caller may do the verb on the locks of its namespace, or on the
// one lock that the function returns. It looks at no lock, so a caller without the right cannot
// tell whether there is one. A nil function, or an empty key, means that the call is about no
// single lock. What was not reviewed lately is paid for, see [limits.Permit.Pay]. The error is a [*ForbiddenError], a
// [*limits.Error], the error of ctx, or matches [lock.ErrUnavailable].
func (c *Control) Authorize(ctx context.Context, caller *Caller, verb string, single func() v1alpha1.FullKey) error {
	return c.authorize(ctx, caller, verb, resourceOfLocks, nameOf(single))
}

// nameOf returns the name of the object of a lock, which is empty if there is no single one.
func nameOf(single func() v1alpha1.FullKey) func() string {
	return func() string {
		if single == nil {
			return ""
		}
		key := single()
		if key.Bare() == "" {
			return ""
		}
		return key.ObjectName()
	}
}

// AuthorizeFunction returns nil if the caller may call the function, which runs in another service,
// on behalf of its namespace; without a namespace it needs the right in all of them. The error is
// as that of [Control.Authorize].
func (c *Control) AuthorizeFunction(ctx context.Context, caller *Caller, function string) error {
	return c.authorize(ctx, caller, verbCall, resourceOfFunctions, func() string {
		if len(function) > maxFunctionName {
			return ""
		}
		return function
	})
}

// maxFunctionName bounds a review, in bytes. A Role that names a longer function does not grant it.
const maxFunctionName = 1024

// authorize asks for the right to all objects of the resource, and only if the caller lacks it, for
// that to the named one. An answer about all objects is remembered for every name, so the usual
// caller costs one review for all its locks.
func (c *Control) authorize(ctx context.Context, caller *Caller, verb, resource string, name func() string) error {
	if c.access == nil {
		return nil
	}
	right := authorizationv1.ResourceAttributes{
		Verb: verb, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource, Namespace: caller.Namespace,
	}
	err := c.review(ctx, caller, right)
	refusal := err
	if errors.Is(err, lock.ErrForbidden) {
		if right.Name = name(); right.Name != "" {
			err = c.review(ctx, caller, right)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrForbidden):
		// One answer for every name: that about all objects.
		return &ForbiddenError{Verb: verb, Resource: resource + "." + right.Group, Namespace: right.Namespace, Err: refusal}
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		return refused
	}
	return fmt.Errorf("%w: authorize a caller to %s %s in %s: %w; %w", lock.ErrUnavailable, verb, resource, right.Namespace, err, lock.ErrNothingDone)
}

// review asks whether the caller has a right.
func (c *Control) review(ctx context.Context, caller *Caller, asked authorizationv1.ResourceAttributes) error {
	begun, err := c.reviews.begin(ctx, caller, asked)
	if err != nil {
		return err
	}
	found := unknown
	defer func() { begun.end(found) }()
	err = c.access.Authorize(ctx, caller.User, asked)
	switch {
	case err == nil:
		found = allowed
	case errors.Is(err, lock.ErrForbidden):
		found = denied
	}
	return err
}
