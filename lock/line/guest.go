package line

import "context"

type guestKey struct{}

// ContextWithGuest returns a context for a stream of a guest: a replica that is no member, and asks for the locks of
// one user alone. The home declines what it asks for others, and what a guest does not need.
func ContextWithGuest(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, guestKey{}, user)
}

// guestOf returns the user of the guest whose stream has the context, or "".
func guestOf(ctx context.Context) string {
	user, _ := ctx.Value(guestKey{}).(string)
	return user
}

// isFor reports whether a guest may ask the question for its user.
func (q *question) isFor(user string) bool {
	switch q.Kind {
	case ping, take, leave, giveUp: // Of its own callers, by the IDs of its stream.
		return true
	case enlist:
		return q.Acquisition != nil && q.Acquisition.Holder == user
	case release, renew:
		return q.Proof != nil && q.Proof.Holder == user
	case list, count, ending:
	}
	return false
}
