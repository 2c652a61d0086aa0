package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/rules"
)

// DefaultOperationTimeout is how long one acquire or release may take, read-backs
// of unanswered writes included.
const DefaultOperationTimeout = 5 * time.Second

// maxStampDrift is how far stamps may run ahead of the clock before they follow it
// again, which they must where the clock was stepped back.
const maxStampDrift = time.Millisecond

// Options configures an [Engine].
type Options struct {
	// Objects returns the requests in a namespace, usually [Client.Locks]. Required.
	Objects func(namespace string) Objects
	// Limits bounds what is granted. Required.
	Limits rules.Limits
	// ClockSkewAllowance is how long after its expireTime a lock is left alone, so
	// that a clock that is ahead takes nothing away. Zero means not at all.
	ClockSkewAllowance time.Duration
	// OperationTimeout bounds one operation. Zero means [DefaultOperationTimeout].
	OperationTimeout time.Duration
	// Clock tells the time that grants are stamped with and expiry is judged by.
	// Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what goes wrong where no caller is left to tell. Zero discards.
	Logger logr.Logger
}

// Engine acquires and releases locks. An uncontended acquire is one write and no
// read; so is a release through the engine that acquired. Safe for concurrent use.
//
// An engine must be started: [Engine.Start] owns the goroutines that finish what
// callers no longer wait for.
type Engine struct {
	objects   func(namespace string) Objects
	limits    rules.Limits
	allowance time.Duration
	timeout   time.Duration
	clock     clock.WithTicker

	grants  *grants
	orphans *orphans

	mu        sync.Mutex
	stopped   bool
	lastStamp time.Time
	// calls counts the acquisitions under way, whose callers may have gone.
	calls sync.WaitGroup
}

// NewEngine returns an engine that is not yet started.
func NewEngine(options Options) (*Engine, error) {
	switch {
	case options.Objects == nil:
		return nil, errors.New("lock engine: Objects is required")
	case options.Limits.DefaultTTL <= 0 || options.Limits.DefaultTTL > options.Limits.MaxTTL:
		return nil, errors.New("lock engine: the default ttl must be more than zero and at most the maximum")
	case options.ClockSkewAllowance < 0:
		return nil, errors.New("lock engine: the clock skew allowance must not be negative")
	}
	if options.OperationTimeout <= 0 {
		options.OperationTimeout = DefaultOperationTimeout
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	engine := &Engine{
		objects:   options.Objects,
		limits:    options.Limits,
		allowance: options.ClockSkewAllowance,
		timeout:   options.OperationTimeout,
		clock:     options.Clock,
		grants:    newGrants(),
	}
	engine.orphans = newOrphans(engine.endGrant, options.Clock, options.Logger)
	return engine, nil
}

// Start runs until ctx ends. From then on nothing is acquired any more; Start
// returns when the acquisitions under way are over and what they left behind was
// tried to be ended once, which together takes two operation timeouts at most. It
// implements controller-runtime's manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range orphanWorkers {
		workers.Go(func() { e.orphans.run(working) })
	}
	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.calls.Wait()
	e.orphans.queue.ShutDown()
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-e.clock.After(e.timeout):
		cancel()
		<-idle
	}
	return nil
}

// stamp reads the clock for a grant. No two grants of an engine have the same time,
// since owner and time together are how the engine knows its own grants, and
// callers may share an owner token.
func (e *Engine) stamp() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Truncate(time.Microsecond)
	if earliest := e.lastStamp.Add(time.Microsecond); now.Before(earliest) && earliest.Sub(now) < maxStampDrift {
		now = earliest
	}
	e.lastStamp = now
	return now
}

// begin counts an acquisition in unless the engine has stopped.
func (e *Engine) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.calls.Add(1)
	return true
}

// NeedLeaderElection is false: every replica serves its own callers.
func (e *Engine) NeedLeaderElection() bool { return false }

// NewOwner returns a new owner token, a random UUID v4.
func NewOwner() string { return string(uuid.NewUUID()) }

// detached returns a context that outlives the caller's and is bounded by the
// operation timeout: a write that was sent is followed to its end.
func (e *Engine) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
}
