package lock

import (
	"context"
	"errors"
)

// Do acquires the lock of the key as [Client.Acquire] does, calls fn, and releases the lock when
// fn returns, panics or ends its goroutine. The context of fn is [Held.Context]: it ends with ctx,
// or as soon as the lock is or may be lost. Do waits for fn to return.
//
// If the lock cannot be acquired, Do does not call fn and returns the error of Acquire. Otherwise
// it returns the error of fn, joined with that of [Held.Release] if there is one. An error
// although fn returned nil means that the lock was lost while fn ran, and another holder may have
// worked at the same time. If it matches [ErrUnavailable], perhaps only the release went
// unanswered.
func (c *Client) Do(ctx context.Context, key string, fn func(ctx context.Context, held *Held) error, options ...Option) (err error) {
	settings, err := c.settings("Do", ofAcquire, key, options)
	if err != nil {
		return err
	}
	held, err := c.acquire(ctx, settings)
	if err != nil {
		return err
	}
	// Deferred: a panic in fn also releases the lock.
	defer func() { err = withRelease(err, held.Release(ctx)) }()
	return fn(held.Context(), held) // it descends from ctx
}

// withRelease joins the two errors, that of the work first. A single error is returned unwrapped.
func withRelease(work, release error) error {
	switch {
	case release == nil:
		return work
	case work == nil:
		return release
	}
	return errors.Join(work, release)
}
