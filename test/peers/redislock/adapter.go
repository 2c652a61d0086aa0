//go:build peers

// Package redislock is what redislock's client becomes with our locks. It is compiled in a copy of the library
// that has lost these declarations; errors, options and retry strategies stay those of the library.
package redislock

import (
	"context"
	"errors"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/peers/slow"
)

// Obtain tries to take the lock, and again as often as the strategy says.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	token := opt.getToken()
	if token == "" {
		var err error
		if token, err = c.randomToken(); err != nil {
			return nil, err
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ttl*slow.Factor)
		defer cancel()
	}
	retry := opt.getRetryStrategy()
	for {
		held, err := c.client.Locks().TryAcquire(ctx, key, lock.WithTTL(ttl*slow.Factor), lock.WithoutRenewal(),
			lock.WithOwner(token), lock.WithReason(opt.getMetadata()))
		switch {
		case err == nil:
			return &Lock{held: held, metadata: opt.getMetadata()}, nil
		case !errors.Is(err, lock.ErrHeld):
			return nil, err
		}
		backoff := retry.NextBackoff()
		if backoff < 1 {
			return nil, ErrNotObtained
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff * slow.Factor):
		}
	}
}

// Lock is a lock that was obtained.
type Lock struct {
	held     *lock.Held
	metadata string
}

// Key returns the key of the lock.
func (l *Lock) Key() string { return l.held.Key().Bare() }

// Token returns the owner token.
func (l *Lock) Token() string { return l.held.Owner() }

// Metadata returns the text that the lock was obtained with.
func (l *Lock) Metadata() string { return l.metadata }

// TTL returns how long the lock has left, zero after its end.
func (l *Lock) TTL(context.Context) (time.Duration, error) {
	if l.held.Err() != nil {
		return 0, nil
	}
	return time.Until(l.held.Deadline()) / slow.Factor, nil
}

// Refresh gives the lock a new ttl.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, _ *Options) error {
	err := l.held.Renew(ctx, ttl*slow.Factor)
	if errors.Is(err, lock.ErrNotHeld) {
		return ErrNotObtained
	}
	return err
}

// Release ends the lock.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	err := l.held.Release(ctx)
	if errors.Is(err, lock.ErrNotHeld) {
		return ErrLockNotHeld
	}
	return err
}
