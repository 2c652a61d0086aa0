package lock

import "context"

type userKey struct{}

// ContextWithUser returns a context that tells on whose behalf an engine acts that has an
// identity of its own. What the user may do is decided before.
func ContextWithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

func userFrom(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// actor is who shows the proof: the user on whose behalf the engine acts, or else the
// holder that the caller has been found to be.
func actor(ctx context.Context, proof Proof) string {
	if user := userFrom(ctx); user != "" {
		return user
	}
	return proof.Holder
}
