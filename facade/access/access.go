package access

import (
	"context"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Access tells who calls and what they may do. It is safe for concurrent use. Package auth
// has the one that asks the API server.
type Access interface {
	// Authenticate returns the user who has sent the request, by its header alone: it must
	// not read the body. The error matches [lock.ErrUnauthenticated], or [lock.ErrInvalid]
	// if no user may make such a request; its text is then told to the caller. Any other
	// error means that the user could not be found out.
	Authenticate(request *http.Request) (user.Info, error)
	// Authorize returns nil if the user has the right. A right without a name is one to all
	// objects of the resource, which a Role with resourceNames does not grant. The error matches [lock.ErrForbidden] if
	// not, and its text is then told to the caller. Any other error means that it could not be
	// found out.
	Authorize(ctx context.Context, who user.Info, right authorizationv1.ResourceAttributes) error
}

// Resources of the API group forrst.dev that verbs are on.
const (
	resourceOfLocks = "locks"
	// resourceOfFunctions is virtual: there are no such objects. Their names are those of the
	// functions, as callers name them.
	resourceOfFunctions = "functions"
)

// verbCall is what callers need on a function that runs in another service.
const verbCall = "call"

// Verbs on locks.forrst.dev that calls need.
const (
	// VerbCreate acquires, and renews and releases what the caller holds.
	VerbCreate = "create"
	// VerbGet reads one lock.
	VerbGet = "get"
	// VerbList reads the locks of a namespace.
	VerbList = "list"
	// VerbWatch is shown each change of locks.
	VerbWatch = "watch"
	// VerbPrioritize waits for a lock with a priority above 0, before callers that came earlier. It is besides
	// VerbCreate.
	VerbPrioritize = "prioritize"
	// VerbForceRelease ends a lock of any holder.
	VerbForceRelease = "force-release"
)

// Anonymous is the holder of locks whose callers are not authenticated: the name that
// Kubernetes gives them.
const Anonymous = user.Anonymous

// Caller is the user who makes a call, and the namespace of the locks that it is about.
type Caller struct {
	// User has all that is known of the user, such as the Pod of a service account's token.
	// Never nil. Its name is [Anonymous] where callers are not authenticated.
	User user.Info
	// Namespace is where the locks of the call are. It is empty if the call needs no
	// locks and names no namespace.
	Namespace string
	// IsAuthenticated is false where callers are not authenticated. An owner token is then
	// all that a caller can show.
	IsAuthenticated bool
	// Permit counts the request against the limits of the caller, and pays for what it has the API server do. Nil allows all.
	Permit *limits.Permit
}

// Holder is the identity that holds what the caller acquires.
func (c *Caller) Holder() string { return c.User.GetName() }

// Proof is what the caller shows of a lock with an owner token.
func (c *Caller) Proof(owner string) lock.Proof {
	if !c.IsAuthenticated {
		return lock.Proof{Owner: owner}
	}
	return lock.Proof{Owner: owner, Holder: c.Holder(), HolderUID: c.User.GetUID()}
}

// Owns reports whether the caller may be shown the owner token of the lock, as its holder.
func (c *Caller) Owns(held *v1alpha1.Lock) bool {
	return !c.IsAuthenticated || rules.User{Name: c.Holder(), UID: c.User.GetUID()}.Holds(held)
}
