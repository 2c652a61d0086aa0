package forrst

import (
	"context"
	"regexp"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const (
	// cancelledFor is how long a cancelled token stays cancelled (docs/forrst.md, section 10.4).
	cancelledFor = 5 * time.Minute
	// maxCancelled bounds the tokens that are remembered; the oldest are forgotten first.
	maxCancelled = 10_000
)

// cancellationToken is what tokens look like (docs/forrst.md, section 10.4).
var cancellationToken = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,100}$`)

// cancellation is the extension by which another call can end this one. It has no entry in the response.
func (c *call) cancellation(position int) wrapper {
	fields := c.readOptions(position, &c.faults)
	token := readToken(&fields)
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) { return c.invokeCancellable(ctx, token, invoke) }
	}
}

func readToken(fields *envelope.Fields) string {
	token, ok := fields.RequiredText("token")
	if ok && !cancellationToken.MatchString(token) {
		fields.Fail("token", "must be at most 100 letters, digits, hyphens and underscores")
	}
	return token
}

// invokeCancellable runs the function unless or until the token is cancelled. A token that has been cancelled counts, too,
// for a call that comes after that.
func (c *call) invokeCancellable(ctx context.Context, token string, invoke Invocation) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	key := cancellationKey{c.Caller.Holder(), token}
	entry := c.cancellations.begin(key, cancel)
	if entry == nil {
		return nil, tokenProblem(envelope.Cancelled, "The call was cancelled", token)
	}
	defer c.cancellations.end(key, entry)
	c.markCompleted = func() { c.cancellations.complete(entry) }
	result, err := invoke(ctx)
	// Once more: an extension may have failed before the function began.
	if c.cancellations.complete(entry) {
		c.undoUnanswered(ctx, err)
		return nil, tokenProblem(envelope.Cancelled, "The call was cancelled", token)
	}
	return result, err
}

func tokenProblem(code envelope.Code, message, token string) error {
	return new(envelope.Error{Code: code, Message: message}.With(map[string]string{"token": token}))
}

// prepareCancel cancels calls of the same caller on the same replica.
func (c *call) prepareCancel() Invocation {
	fields := c.readArguments(&c.faults)
	token := readToken(&fields)
	return func(context.Context) (any, error) {
		switch isKnown, isCancelled := c.cancellations.cancel(cancellationKey{c.Caller.Holder(), token}); {
		case isCancelled:
			return map[string]any{"cancelled": true, "token": token}, nil
		case isKnown:
			return nil, tokenProblem(envelope.CancellationTooLate, "The function of the call is over", token)
		}
		return nil, tokenProblem(envelope.CancellationTokenUnknown, "No call has the token", token)
	}
}

// cancellationKey names calls that can be cancelled. A caller cannot cancel what another caller runs.
type cancellationKey struct{ holder, token string }

// cancellable is one call that can be cancelled until its function is over.
type cancellable struct {
	cancel                   context.CancelFunc
	isCompleted, isCancelled bool
}

// cancellations are the calls of this replica that can be cancelled, and the tokens that were. It is safe for concurrent
// use.
type cancellations struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	running map[cancellationKey]map[*cancellable]struct{}
	// cancelled are tokens in the order in which they were cancelled, and isCancelled those that are in it.
	cancelled   []cancelledToken
	isCancelled map[cancellationKey]bool
}

type cancelledToken struct {
	key cancellationKey
	at  time.Time
}

func newCancellations(clock clock.PassiveClock) *cancellations {
	return &cancellations{clock: clock, running: map[cancellationKey]map[*cancellable]struct{}{}, isCancelled: map[cancellationKey]bool{}}
}

// begin adds a call, which end removes. It returns nil, and adds nothing, if the token has been cancelled.
func (c *cancellations) begin(key cancellationKey, cancel context.CancelFunc) *cancellable {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if c.isCancelled[key] {
		return nil
	}
	if c.running[key] == nil {
		c.running[key] = map[*cancellable]struct{}{}
	}
	entry := &cancellable{cancel: cancel}
	c.running[key][entry] = struct{}{}
	return entry
}

func (c *cancellations) end(key cancellationKey, entry *cancellable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running[key], entry)
	if len(c.running[key]) == 0 {
		delete(c.running, key)
	}
}

// complete records that the function of a call is over: what is left to do, such as the release of its lock, cannot be
// cancelled. It reports whether the call was cancelled before.
func (c *cancellations) complete(entry *cancellable) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.isCompleted = true
	return entry.isCancelled
}

// cancel ends the calls with the token. To do so again changes nothing. It reports whether a call has, or had, the token,
// and whether it was not too late.
func (c *cancellations) cancel(key cancellationKey) (isKnown, isCancelled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if c.isCancelled[key] {
		return true, true
	}
	for entry := range c.running[key] {
		if isKnown = true; !entry.isCompleted || entry.isCancelled {
			entry.isCancelled, isCancelled = true, true
			entry.cancel()
		}
	}
	if isCancelled {
		c.isCancelled[key] = true
		c.cancelled = append(c.cancelled, cancelledToken{key, c.clock.Now()})
	}
	return isKnown, isCancelled
}

// forget drops tokens that need not be remembered.
func (c *cancellations) forget() {
	now := c.clock.Now()
	for len(c.cancelled) > 0 && (len(c.cancelled) >= maxCancelled || now.Sub(c.cancelled[0].at) >= cancelledFor) {
		delete(c.isCancelled, c.cancelled[0].key)
		c.cancelled[0] = cancelledToken{}
		c.cancelled = c.cancelled[1:]
	}
}
