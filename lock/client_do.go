package lock

import (
	"context"
	"errors"
)

// Do acquires the lock of the key as [Client.Acquire] does, calls fn, and releases the
// lock when fn returns, panics or ends its goroutine. The context that fn gets is
// [Held.Context]: it ends with ctx, or as soon as the lock is or may be lost. Do
// waits for fn to return.
//
// If the lock cannot be acquired, fn is not called and Do returns the error of
// Acquire. Otherwise it returns the error of fn, joined with that of [Held.Release] if
// there is one. So an error although fn returned nil means either that the lock was
// lost while fn was at work, and others may have been at the same, or, if it matches
// [ErrUnavailable], perhaps only that the release was not answered.
func (c *Client) Do(ctx context.Context, key string, fn func(ctx context.Context, held *Held) error, options ...Option) (err error) {
	held, err := c.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	// Deferred, so that a panic passes through with the lock released.
	defer func() { err = withRelease(err, held.Release(ctx)) }()
	return fn(held.Context(), held) //nolint:contextcheck // it descends from ctx
}

// withRelease returns the error of the work first and as it is, if that is all.
func withRelease(work, release error) error {
	switch {
	case release == nil:
		return work
	case work == nil:
		return release
	}
	return errors.Join(work, release)
}
