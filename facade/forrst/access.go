package forrst

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/lock/rules"
)

// Access tells who calls and what they may do. It is safe for concurrent use. Package
// facade/auth has the one that asks the API server.
type Access interface {
	// Authenticate returns who has sent the request, by its header alone: the body has not
	// been read, and must not be. The error matches [lock.ErrUnauthenticated], or
	// [lock.ErrInvalid] if the request is one that nobody may make; its text is told to the
	// caller then. Any other error means that it could not be found out.
	Authenticate(request *http.Request) (user.Info, error)
	// Authorize returns nil if the user may do the verb on the locks of the namespace. The
	// error matches [lock.ErrForbidden] if not, and its text is told to the caller. Any
	// other error means that it could not be found out.
	Authorize(ctx context.Context, who user.Info, verb, namespace string) error
}

// Verbs on locks.forrst.dev that calls need.
const (
	// VerbCreate acquires, and renews and releases what the caller holds.
	VerbCreate = "create"
	// VerbGet reads one lock.
	VerbGet = "get"
	// VerbList reads the locks of a namespace.
	VerbList = "list"
	// VerbForceRelease ends a lock whoever holds it.
	VerbForceRelease = "force-release"
)

// Caller is who makes a call, and whose locks it is about.
type Caller struct {
	// User is who is authenticated, with all that is known of it, such as the pod whose
	// service account it is. Never nil. Its name is [Anonymous] where nobody is.
	User user.Info
	// Namespace is where the locks of the call are. It is empty if the call needs no
	// locks and does not say.
	Namespace string
}

// anonymous is everyone where nobody is authenticated.
var anonymous user.Info = &user.DefaultInfo{Name: Anonymous}

// holder is the identity that holds what the caller acquires.
func (c *Caller) holder() string { return c.User.GetName() }

// proof is what the caller shows of a lock with an owner token. Where nobody is
// authenticated, the token is all there is to show.
func (c *call) proof(owner string) rules.Proof {
	if c.config.Access == nil {
		return rules.Proof{Owner: owner}
	}
	return rules.Proof{Owner: owner, Holder: c.caller.holder()}
}

// isOwn reports whether the caller may be shown the owner token of a lock with the
// holder.
func (c *call) isOwn(holder string) bool {
	return c.config.Access == nil || holder == c.caller.holder()
}
