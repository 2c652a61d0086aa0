package lock

import "context"

type userKey struct{}

// ContextWithUser returns a context that names the user on whose behalf an engine with its own
// identity acts. The caller has checked what the user may do.
func ContextWithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// UserFrom returns the user that [ContextWithUser] put into the context, or "".
func UserFrom(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
