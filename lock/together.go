package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/together"
)

// MaxTogether is how many locks [Client.AcquireAll] acquires at most.
const MaxTogether = together.MaxLocks

// AcquireAll takes the locks of all keys, or none of them, and renews each until [HeldAll.Release]. It tries them in the
// order of their full keys. If one is held, it gives back those that it has and waits for that one: so it keeps nothing
// while it waits. After three such rounds it waits in the order of the keys and keeps what it has, unless
// [WithStrictTogether] forbids that. Sets that wait never wait for each other in a circle. A program that acquires one
// lock while it holds another does: see [WithLockOrder].
//
// [WithWait] bounds all waits together. The options hold for each lock, and [WithRetry] does not concern AcquireAll. The
// error is as that of [Client.Acquire], and matches [ErrInvalid] too if there is no key, one is given twice, or there are
// more than [MaxTogether]. If a lock that could not be given back stays for its ttl, the error says so.
func (c *Client) AcquireAll(ctx context.Context, keys []string, options ...Option) (*HeldAll, error) {
	return c.acquireAll(ctx, "AcquireAll", keys, options)
}

// acquireAll is AcquireAll on behalf of the method.
func (c *Client) acquireAll(ctx context.Context, method string, keys []string, options []Option) (*HeldAll, error) {
	settings, err := c.settings(method, ofTogether, "", options)
	if err != nil {
		return nil, err
	}
	settings.retry = nil
	if err := settings.setKeys(keys); err != nil {
		return nil, err
	}
	for _, key := range settings.keys {
		settings.request.Key = key
		if err := c.checkContext(ctx, settings); err != nil {
			return nil, err
		}
	}
	return c.takeAll(ctx, settings)
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

// setKeys sets the keys of a call in the order of their full keys.
func (s *settings) setKeys(keys []string) error {
	path, fullKey := field.NewPath("keys"), func(key string) v1alpha1.FullKey {
		s.request.Key = key
		return s.request.FullKey()
	}
	var problems field.ErrorList
	switch {
	case len(keys) == 0:
		problems = append(problems, field.Required(path, "name at least one"))
	case len(keys) > MaxTogether:
		problems = append(problems, field.TooMany(path, len(keys), MaxTogether))
	}
	first := map[v1alpha1.FullKey]bool{}
	for index, key := range keys {
		if first[fullKey(key)] {
			problems = append(problems, field.Duplicate(path.Index(index), key))
		}
		first[fullKey(key)] = true
	}
	if len(problems) > 0 {
		return &InvalidError{Problems: problems}
	}
	s.keys = slices.SortedFunc(slices.Values(keys), func(a, b string) int { return cmp.Compare(fullKey(a), fullKey(b)) })
	return nil
}

// takeAll acquires the locks, whatever locks the context carries.
func (c *Client) takeAll(ctx context.Context, settings settings) (*HeldAll, error) {
	wait := settings.request.Wait
	settings.request.Since = settings.clock.Now()
	taker := &heldTaker{client: c, settings: settings, outer: ctx}
	held, last, err := together.Acquire(ctx, settings.clock, taker, len(settings.keys), together.Limits{Wait: wait, IsStrict: settings.isStrict})
	if err != nil {
		if wait > 0 && errors.Is(err, ErrHeld) && !errors.Is(err, ErrTimeout) {
			err = fmt.Errorf("%w: %w", ErrTimeout, err)
		}
		return nil, err
	}
	all := &HeldAll{held: held, ctx: held[last].ctx}
	if err := all.confirm(ctx, last); err != nil {
		_ = all.Release(ctx)
		return nil, err
	}
	return all, nil
}

// heldTaker takes locks under the contexts of those that it has, so that the loss of one ends the wait for the next.
type heldTaker struct {
	client   *Client
	settings settings
	outer    context.Context
	taken    []*Held
}

// Take implements [together.Taker].
func (t *heldTaker) Take(_ context.Context, number int, wait time.Duration) (*Held, error) {
	settings, ctx := t.settings, t.outer
	settings.request.Key, settings.request.Wait = settings.keys[number], wait
	if count := len(t.taken); count > 0 {
		ctx = t.taken[count-1].ctx
	}
	held, err := t.client.take(ctx, settings)
	switch {
	case err == nil:
		t.taken = append(t.taken, held)
	case ctx.Err() != nil && t.outer.Err() == nil: // A lock of the set was lost meanwhile.
		err = failed("acquire", settings.request.FullKey(), t.client.namespace, context.Cause(ctx))
	}
	return held, err
}

// GiveBack implements [together.Taker]. A lock that was lost is not left.
func (t *heldTaker) GiveBack(ctx context.Context, held *Held) error {
	t.taken = t.taken[:len(t.taken)-1]
	if err := held.Release(ctx); !errors.Is(err, ErrNotHeld) {
		return err
	}
	return nil
}

// HeldAll are locks that were acquired together. They end one by one, as [Held] says; the end of one ends
// [HeldAll.Context]. The others stay, renewed, until [HeldAll.Release]. Every HeldAll must be released. Safe for
// concurrent use.
type HeldAll struct {
	held []*Held
	ctx  context.Context
}

// Locks returns the locks in the order of their full keys.
func (h *HeldAll) Locks() []*Held { return slices.Clone(h.held) }

// FencingToken returns the largest number of the grants, which fences each of the locks: it is larger than that of any
// earlier grant of each key, and smaller than that of any later one.
func (h *HeldAll) FencingToken() int64 {
	return slices.MaxFunc(h.held, func(a, b *Held) int { return cmp.Compare(a.token, b.token) }).token
}

// Deadline returns when the first of the locks ends unless it is renewed; see [Held.Deadline].
func (h *HeldAll) Deadline() time.Time {
	return slices.MinFunc(h.held, func(a, b *Held) int { return a.Deadline().Compare(b.Deadline()) }).Deadline()
}

// Context returns a context for work under all of the locks. It ends with the context that they were acquired with or
// as soon as one of them ends; [context.Cause] then returns the error of [HeldAll.Err].
func (h *HeldAll) Context() context.Context {
	_ = h.Err() // Err reads the clock.
	return h.ctx
}

// Err returns nil while all locks are held, and then the error of one that is not, see [Held.Err].
func (h *HeldAll) Err() error {
	for _, held := range h.held {
		if err := held.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Renew replaces the remaining time of each lock by a whole ttl; see [Held.Renew]. A lock that cannot be renewed keeps no
// other from it. The errors are joined.
func (h *HeldAll) Renew(ctx context.Context, ttl time.Duration) error {
	return h.each(func(held *Held) error { return held.Renew(ctx, ttl) })
}

// Release ends all locks, see [Held.Release]. A lock that cannot be released keeps no other from it. The errors are
// joined.
func (h *HeldAll) Release(ctx context.Context) error {
	return h.each(func(held *Held) error { return held.Release(ctx) })
}

// each does the same with each lock, and with the last first, as locks that were taken in their order are released.
func (h *HeldAll) each(do func(*Held) error) error {
	var failures []error
	for _, held := range slices.Backward(h.held) {
		failures = append(failures, do(held))
	}
	return errors.Join(failures...)
}

// confirm reads the locks that were granted before the last one. If one has ended by then unnoticed, the number of the
// last grant may be larger than that of the next holder of the other, and would not fence it.
func (h *HeldAll) confirm(ctx context.Context, last int) error {
	for number, held := range h.held {
		if number == last {
			continue
		}
		if err := held.look(ctx); err != nil {
			return failed("acquire", held.key, held.client.namespace, err)
		}
	}
	return h.Err()
}
