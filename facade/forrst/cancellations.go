package forrst

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// cancelledFor is how long a cancelled token stays cancelled (docs/forrst.md, section
	// 10.4).
	cancelledFor = 5 * time.Minute
	// maxCancelled bounds the tokens that are remembered; the oldest are forgotten first.
	maxCancelled = 10_000
)

var (
	errUnknownToken = errors.New("no call has the token")
	errTooLate      = errors.New("the function of the call is over")
)

// cancellationKey names calls that can be cancelled. A caller cannot cancel what another
// caller runs.
type cancellationKey struct{ holder, token string }

// cancellations are the calls of this replica that can be cancelled, and the tokens
// that were. It is safe for concurrent use.
type cancellations struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	running map[cancellationKey]map[*cancellable]struct{}
	// cancelled are tokens in the order in which they were cancelled.
	cancelled []cancelledToken
	// since is when each of them was cancelled.
	since map[cancellationKey]time.Time
}

type cancelledToken struct {
	key cancellationKey
	at  time.Time
}

func newCancellations(clock clock.PassiveClock) *cancellations {
	return &cancellations{
		clock:   clock,
		running: map[cancellationKey]map[*cancellable]struct{}{},
		since:   map[cancellationKey]time.Time{},
	}
}

// begin adds a call; end removes it. It reports false, and adds nothing, if the token
// has been cancelled.
func (c *cancellations) begin(key cancellationKey, entry *cancellable) (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if _, isCancelled := c.since[key]; isCancelled {
		return nil, false
	}
	calls := c.running[key]
	if calls == nil {
		calls = map[*cancellable]struct{}{}
		c.running[key] = calls
	}
	calls[entry] = struct{}{}
	return func() { c.end(key, entry) }, true
}

func (c *cancellations) end(key cancellationKey, entry *cancellable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running[key], entry)
	if len(c.running[key]) == 0 {
		delete(c.running, key)
	}
}

// cancel ends the calls with the token. To do so again changes nothing. The error is
// errUnknownToken or errTooLate.
func (c *cancellations) cancel(key cancellationKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if _, isCancelled := c.since[key]; isCancelled {
		return nil
	}
	calls := c.running[key]
	if len(calls) == 0 {
		return errUnknownToken
	}
	err := errTooLate
	for entry := range calls {
		if entry.tryCancel() {
			err = nil
		}
	}
	if err == nil {
		now := c.clock.Now()
		c.since[key] = now
		c.cancelled = append(c.cancelled, cancelledToken{key, now})
	}
	return err
}

// forget drops tokens that need not be remembered.
func (c *cancellations) forget() {
	now := c.clock.Now()
	for len(c.cancelled) > 0 && (len(c.cancelled) >= maxCancelled || now.Sub(c.cancelled[0].at) >= cancelledFor) {
		delete(c.since, c.cancelled[0].key)
		c.cancelled[0] = cancelledToken{}
		c.cancelled = c.cancelled[1:]
	}
}

// cancellable is one call that can be cancelled until its function is over. It is safe
// for concurrent use.
type cancellable struct {
	cancel context.CancelFunc

	mu                   sync.Mutex
	completed, cancelled bool
}

// markCompleted records that the function is over: what is left to do, such as the release of its
// lock, cannot be cancelled. It may be called twice: right after the function, and after the
// extensions around it, one of which may have failed before the function began.
func (c *cancellable) markCompleted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.completed = true
}

// tryCancel reports false if it is too late.
func (c *cancellable) tryCancel() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.completed && !c.cancelled {
		return false
	}
	c.cancelled = true
	c.cancel()
	return true
}

func (c *cancellable) isCancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}
