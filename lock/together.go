package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"forrst.dev/lock-operator/lock/together"
)

// MaxTogether is how many locks [Client.AcquireAll] acquires at most.
const MaxTogether = together.MaxLocks

// AcquireAll acquires the locks of all keys, or none of them, and renews each until [HeldAll.Release]. It tries them in
// the order of their full keys. If one is held, it releases those that it has, and waits for that one. After three such
// rounds it waits for each lock in that order, and keeps those that it has meanwhile. Calls of AcquireAll never wait for
// each other in a circle, unless their callers hold other locks. With [WithoutHoldAndWait] or [WithoutRenewal] it never
// keeps a lock while it waits, so it waits in no circle with callers that acquire single locks one after the other either.
//
// [WithWait] bounds all waits together. The options hold for each lock; [WithRetry] does not concern AcquireAll. When the
// last lock is granted, AcquireAll reads the others, which takes the right to get them.
//
// If it fails, the caller holds none of the locks. The error is as that of [Client.Acquire]. It also matches [ErrInvalid]
// if there is no key, one is given twice, or there are more than [MaxTogether]. If a lock could not be released
// and stays for its ttl, the error is why, whatever had failed before. A release takes no longer than [WithReleaseTimeout]
// permits, also after the end of ctx.
func (c *Client) AcquireAll(ctx context.Context, keys []string, options ...Option) (*HeldAll, error) {
	return c.acquireAll(ctx, "AcquireAll", keys, options)
}

// DoAll is [Client.Do] for the locks of [Client.AcquireAll]: the context of fn ends as soon as one of them is or may be
// lost.
func (c *Client) DoAll(ctx context.Context, keys []string, fn func(ctx context.Context, held *HeldAll) error, options ...Option) (err error) {
	held, err := c.acquireAll(ctx, "DoAll", keys, options)
	if err != nil {
		return err
	}
	// Deferred: a panic in fn also releases the locks.
	defer func() { err = withRelease(err, held.Release(ctx)) }()
	return fn(held.Context(), held)
}

// acquireAll is AcquireAll on behalf of the method.
func (c *Client) acquireAll(ctx context.Context, method string, keys []string, options []Option) (*HeldAll, error) {
	settings, err := c.settings(method, ofTogether, "", options)
	if err != nil {
		return nil, err
	}
	settings.retry = nil // A retry would keep some locks while it waits for another.
	requests, err := settings.requestsOf(keys)
	if err != nil {
		return nil, err
	}
	for _, request := range requests {
		settings.request = request
		if err := c.checkContext(ctx, settings); err != nil {
			return nil, err
		}
	}
	taker := &heldTaker{client: c, settings: settings, requests: requests, outer: ctx, ctx: ctx}
	wait := settings.request.Wait
	held, err := together.Acquire(ctx, settings.clock, taker, len(requests), together.Limits{
		Wait: wait, IsStrict: settings.isStrict || !settings.isRenewed, // Without renewal, what is kept would expire.
	})
	if err != nil {
		if wait > 0 && errors.Is(err, ErrHeld) && !errors.Is(err, ErrTimeout) {
			err = fmt.Errorf("%w: %w", ErrTimeout, err)
		}
		return nil, err
	}
	return &HeldAll{held: held, ctx: taker.ctx}, nil
}

// requestsOf returns the request for the lock of each key, in the order of the full keys.
func (s *settings) requestsOf(keys []string) ([]Request, error) {
	acquisitions, problems := together.Order(s.request.Acquisition, keys)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	requests := make([]Request, len(acquisitions))
	for number, acquisition := range acquisitions {
		requests[number] = s.request
		requests[number].Acquisition = acquisition
	}
	return requests, nil
}

// heldTaker takes each lock under the contexts of those that it has, so that the loss of one ends the wait for the next.
type heldTaker struct {
	client   *Client
	settings settings
	requests []Request
	// outer is the context of the caller, and ctx that of the lock that was taken last, if there is one.
	outer, ctx context.Context
}

// Take implements [together.Taker].
func (t *heldTaker) Take(_ context.Context, number int, wait time.Duration) (*Held, error) {
	settings := t.settings
	settings.request = t.requests[number]
	settings.request.Wait = wait
	held, err := t.client.take(t.ctx, settings)
	switch {
	case err == nil:
		t.ctx = held.ctx
	case t.outer.Err() == nil && t.ctx.Err() != nil:
		err = fmt.Errorf("%w, and was lost while the call asked for %s", context.Cause(t.ctx), settings.request.FullKey())
	}
	return held, err
}

// Confirm implements [together.Taker].
func (t *heldTaker) Confirm(_ context.Context, held *Held) error {
	err := held.look(t.ctx)
	switch {
	case t.outer.Err() != nil:
		return Interrupted(t.outer, held.key, err)
	case t.ctx.Err() != nil:
		err = context.Cause(t.ctx)
	}
	if err == nil {
		return nil
	}
	return failed("acquire", held.key, t.client.namespace, err)
}

// GiveBack implements [together.Taker].
func (t *heldTaker) GiveBack(ctx context.Context, grants []*Held) error {
	t.ctx = t.outer
	return eachHeld(grants, func(held *Held) error {
		err := held.Release(ctx)
		if err == nil || errors.Is(err, ErrNotHeld) { // It was lost, so nothing is left of it.
			return nil
		}
		return fmt.Errorf("%w; the lock ends by itself, at the latest in %s", err, cmp.Or(t.settings.request.TTL, DefaultTTL))
	})
}

// eachHeld does the same with each lock at once, so that none waits for another. It joins the errors.
func eachHeld(held []*Held, do func(*Held) error) error {
	failures := make([]error, len(held))
	var calls sync.WaitGroup
	for index, each := range held {
		calls.Go(func() { failures[index] = do(each) })
	}
	calls.Wait()
	return errors.Join(failures...)
}

// HeldAll are locks that were acquired together. Each ends as [Held] says, and the end of one ends [HeldAll.Context]. The
// others go on until [HeldAll.Release]. Every HeldAll must be released. Safe for concurrent use.
type HeldAll struct {
	held []*Held
	ctx  context.Context

	mu sync.Mutex
	// err is why the first of the locks has ended, once that is known.
	err error
}

// Locks returns the locks in the order of their full keys. Work under all of them needs [HeldAll.Context] and
// [HeldAll.FencingToken] in place of those of a single one.
func (h *HeldAll) Locks() []*Held { return slices.Clone(h.held) }

// FencingToken returns the number of the last grant, which fences each of the locks: it is larger than that of each earlier
// grant of any of the keys, and smaller than that of each later one.
func (h *HeldAll) FencingToken() int64 {
	return slices.MaxFunc(h.held, func(a, b *Held) int { return cmp.Compare(a.token, b.token) }).token
}

// Deadline returns when the first of the locks ends unless it is renewed; see [Held.Deadline].
func (h *HeldAll) Deadline() time.Time {
	deadlines := make([]time.Time, len(h.held))
	for index, held := range h.held {
		deadlines[index] = held.Deadline()
	}
	return slices.MinFunc(deadlines, time.Time.Compare)
}

// Context returns a context for work under all of the locks. It ends with the context that they were acquired with, or
// with the first lock that ends. If a lock ends first, [context.Cause] returns why, as [Held.Err] does.
func (h *HeldAll) Context() context.Context {
	_ = h.Err() // Err reads the clock.
	return h.ctx
}

// Err returns nil while all locks are held, and then always the same error: that of the first lock that was found to have
// ended, see [Held.Err].
func (h *HeldAll) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range h.held {
		if h.err == nil {
			h.err = held.Err()
		}
	}
	return h.err
}

// Renew replaces the remaining time of each lock by a whole ttl; see [Held.Renew]. It joins the errors.
func (h *HeldAll) Renew(ctx context.Context, ttl time.Duration) error {
	return eachHeld(h.held, func(held *Held) error { return held.Renew(ctx, ttl) })
}

// Release ends all locks at once; see [Held.Release]. It joins the errors.
func (h *HeldAll) Release(ctx context.Context) error {
	_ = h.Err() // What was lost before is not told as released.
	return eachHeld(h.held, func(held *Held) error { return held.Release(ctx) })
}
