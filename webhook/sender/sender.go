package sender

import "context"

// Sender is what is known of the connection on which a review arrived.
type Sender struct {
	// IsVerified says that the sender has presented a client certificate of the API server. The review
	// is then what that server says. Otherwise its user, its objects and its purpose may be invented.
	IsVerified bool
	// Allow takes one request to the API server from what the reviews of the sender may cost, and
	// reports whether any was left. Nil means that there is no bound. Safe for concurrent use.
	Allow func() bool
}

type key struct{}

// NewContext returns the context of a review of the sender.
func NewContext(ctx context.Context, s Sender) context.Context {
	return context.WithValue(ctx, key{}, s)
}

// FromContext returns the sender of the review. A context without one is that of a sender of which
// nothing is known.
func FromContext(ctx context.Context) Sender {
	s, _ := ctx.Value(key{}).(Sender)
	return s
}
