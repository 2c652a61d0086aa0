package supervise

import "context"

// prepare runs fn with a context that ends with the error that watch returns. If there is one, that is the error,
// whatever fn returned. Watch returns nil when done is closed, which prepare waits for.
func prepare(ctx context.Context, fn func(context.Context) error, watch func(done <-chan struct{}) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		if err := watch(done); err != nil {
			cancel(err)
		}
	}()
	defer func() {
		close(done)
		<-returned
	}()
	err := fn(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
