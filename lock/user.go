package lock

import "context"

type userKey struct{}

// ContextWithUser returns a context that tells on whose behalf an engine acts that has an
// identity of its own. What the user may do is decided before.
func ContextWithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// UserFrom returns the user that [ContextWithUser] put into the context, or "".
func UserFrom(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
