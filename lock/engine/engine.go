package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// DefaultClockSkewAllowance is how far clocks may be apart unless configured otherwise.
const DefaultClockSkewAllowance = time.Second

// maxStampDrift is how far stamps may run ahead of the clock before they follow it
// again, which they must where the clock was stepped back.
const maxStampDrift = time.Millisecond

// Options configures an [Engine].
type Options struct {
	// Objects returns the requests in a namespace, usually [ObjectClient.Locks]. Required.
	Objects func(namespace string) Objects
	// Informer tells of changes to the locks that are waited for. It is run by the
	// caller. Nil means that waiting callers read once a second, and that nothing can
	// be watched.
	Informer Informer
	// Limits bounds what is granted. Required.
	Limits rules.Limits
	// IsAdmitted says that what the engine writes passes the admission of Locks, since
	// its identity is not the operator's: admission then stamps it, and a hand-off or a
	// renewal is asked for by an annotation.
	IsAdmitted bool
	// IsValidated says that callers have validated each request with the same Limits, see
	// [lock.Request.Validate], so that [Engine.Acquire] need not.
	IsValidated bool
	// ClockSkewAllowance is how long after its expireTime a lock is left alone, so
	// that a clock that is ahead takes nothing away. Zero means not at all.
	ClockSkewAllowance time.Duration
	// Clock tells the time that grants are stamped with and expiry is judged by. Before
	// it takes something away by a [servertime.Clock] that is not fresh, the engine makes
	// a read. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what goes wrong where no caller is left to tell. Zero discards.
	Logger logr.Logger
	// Audit takes what the engine finds its writes to have done. Nil means nowhere. An
	// engine that IsAdmitted records nothing: admission does.
	Audit audit.Sink
	// Via is what the records say the engine acts for. Empty means [audit.Facade].
	Via audit.Via
}

// Engine carries out what is to be done about locks by requests to the API server; it
// is the [lock.Backend] that all others go by. An uncontended acquire is one write and no
// read; so are a release and a renewal through the engine that acquired, and a
// hand-off from one of its callers to the next. Waiting costs nothing. Safe for
// concurrent use.
//
// An engine must be started: [Engine.Start] owns the goroutines that finish what
// callers no longer wait for.
type Engine struct {
	objects   func(namespace string) Objects
	limits    rules.Limits
	allowance time.Duration
	timeout   time.Duration
	clock     clock.WithTicker
	log       logr.Logger
	audit     audit.Sink
	via       audit.Via
	// isAdmitted, isValidated and hasInformer are as in Options.
	isAdmitted, isValidated, hasInformer bool
	// runInformer runs an informer that is the engine's own, or is nil.
	runInformer func(context.Context)
	// started is closed by Start.
	started   chan struct{}
	startOnce sync.Once

	// working ends when the engine has stopped.
	working context.Context //nolint:containedctx // the lifetime of what the engine itself does
	stop    context.CancelFunc

	observed *observed
	queues   *queues
	grants   *grants
	orphans  *orphans

	mu        sync.Mutex
	stopped   bool
	lastStamp time.Time
	// calls counts the acquisitions under way, whose callers may have gone.
	calls sync.WaitGroup
}

var _ lock.Backend = (*Engine)(nil)

// New returns an engine that is not yet started.
func New(options Options) (*Engine, error) {
	switch {
	case options.Objects == nil:
		return nil, errors.New("lock engine: Objects is required")
	case options.Limits.DefaultTTL <= 0 || options.Limits.DefaultTTL > options.Limits.MaxTTL:
		return nil, errors.New("lock engine: the default ttl must be more than zero and at most the maximum")
	case options.ClockSkewAllowance < 0:
		return nil, errors.New("lock engine: the clock skew allowance must not be negative")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Via == "" {
		options.Via = audit.Facade
	}
	if options.IsAdmitted {
		options.Audit = nil
	}
	engine := &Engine{
		objects:   options.Objects,
		limits:    options.Limits,
		allowance: options.ClockSkewAllowance,
		timeout:   lock.OperationTimeout,
		clock:     options.Clock,
		log:       options.Logger,
		audit:     audit.OrNowhere(options.Audit),
		via:       options.Via,
		grants:    newGrants(),
		queues:    newQueues(),

		isAdmitted:  options.IsAdmitted,
		isValidated: options.IsValidated,
		hasInformer: options.Informer != nil,
		started:     make(chan struct{}),
	}
	engine.working, engine.stop = context.WithCancel(context.Background())
	engine.observed = newObserved(func(name types.NamespacedName, change lock.Change) {
		engine.queues.changed(name, change, engine.clock.Now())
	})
	if options.Informer != nil {
		if _, err := options.Informer.AddEventHandler(engine.observed); err != nil {
			return nil, fmt.Errorf("lock engine: watch locks: %w", err)
		}
	}
	engine.orphans = newOrphans(engine.endGrant, options.Clock, servertime.Timers(options.Clock), options.Logger)
	return engine, nil
}

// Start runs until ctx ends. From then on nothing is acquired any more, and callers
// that wait are told [lock.ErrUnavailable]. Start returns when the acquisitions under way
// are over and what they left behind was tried to be ended once, which together takes
// two operation timeouts at most. It implements controller-runtime's manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	e.startOnce.Do(func() { close(e.started) })
	var workers, informers sync.WaitGroup
	if e.runInformer != nil {
		informers.Go(func() { e.runInformer(e.working) })
	}
	defer informers.Wait()
	defer e.stop()
	for range orphanWorkers {
		workers.Go(func() { e.orphans.run(e.working) })
	}
	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.queues.stop()
	e.calls.Wait()
	e.observed.close()
	e.orphans.queue.ShutDown()
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-e.clock.After(e.timeout):
		e.stop()
		<-idle
	}
	return nil
}

// stamp returns the time to stamp a grant with that is made now. No two grants of an engine have the same time,
// since owner and time together are how the engine knows its own grants, and
// callers may share an owner token.
func (e *Engine) stamp(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = now.Truncate(time.Microsecond)
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

// detached returns a context that outlives the caller's and is bounded by the
// operation timeout: a write that was sent is followed to its end.
func (e *Engine) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
}
