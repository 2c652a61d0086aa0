// Package redis stands for the client of Redis in redislock's suite, which has it delete locks and give them to
// others behind redislock's back.
package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/peers/backend"
)

// Options are those of the suite, which has nothing to configure here.
type Options struct {
	Network, Addr string
	DB            int
}

// Scripter is what redislock asks of a client: something that has locks.
type Scripter interface {
	Locks() *lock.Client
}

// Client has the locks of the backend that the suite runs on.
type Client struct {
	locks *lock.Client
	done  func()
}

// Result is the answer to a command.
type Result struct{ err error }

// Err returns what the command has failed with.
func (r Result) Err() error { return r.err }

// NewClient opens the backend.
func NewClient(*Options) *Client {
	locks, done, err := backend.Open()
	if err != nil {
		panic(err) // as little can fail in that of Redis
	}
	return &Client{locks: locks, done: done}
}

// Locks returns the locks.
func (c *Client) Locks() *lock.Client { return c.locks }

// Del ends the locks of the keys.
func (c *Client) Del(ctx context.Context, keys ...string) Result {
	for _, key := range keys {
		if err := c.locks.ForceRelease(ctx, key, "DEL"); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			return Result{err: fmt.Errorf("DEL %s: %w", key, err)}
		}
	}
	return Result{}
}

// Set gives the lock of the key to another holder, whose owner token is the value.
func (c *Client) Set(ctx context.Context, key, value string, _ time.Duration) Result {
	if err := c.Del(ctx, key).Err(); err != nil {
		return Result{err: err}
	}
	held, err := c.locks.Acquire(ctx, key, lock.WithOwner(value))
	if err == nil {
		err = held.Detach()
	}
	return Result{err: err}
}

// Close closes the backend.
func (c *Client) Close() error {
	c.done()
	return nil
}
