package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// DefaultClockSkewAllowance is how far clocks may differ unless configured otherwise. The date of an answer has whole
// seconds, so a clock may be wrong by a second more than it shows. The rest is for clocks that drift between two answers.
const DefaultClockSkewAllowance = 1500 * time.Millisecond

// maxStampDrift is how far stamps may run ahead of the clock. Beyond that the clock was stepped
// back, and stamps follow it again.
const maxStampDrift = time.Millisecond

// Options configures an [Engine].
type Options struct {
	// Objects returns the requests in a namespace, usually [ObjectClient.Locks]. Required.
	Objects func(namespace string) Objects
	// Informer reports changes to Locks. The caller runs it. If it is a [KeyInformer], the engine
	// tells it which locks are in use. Nil means that each queue reads its lock about twice a second,
	// and that [Engine.Watch] is unsupported.
	Informer Informer
	// Stream is the stream of the informer. While its watch is closed, the head of each queue
	// reads its lock about twice a second. Nil means that the engine cannot tell.
	Stream *WatchStream
	// Limits bounds the grants. Required.
	Limits rules.Limits
	// IsAdmitted says that the engine's writes pass the admission of Locks, since its identity is
	// not the operator's. Admission then stamps the locks, and the engine asks for a hand-off or a
	// renewal by an annotation.
	IsAdmitted bool
	// IsValidated says that callers have validated each request with the same Limits, see
	// [lock.Request.Validate], and each ttl of a renewal, see [rules.Limits.ValidateTTL]; the engine
	// then does not.
	IsValidated bool
	// MaxPerNamespace is how many locks the informer may have shown of a namespace for the engine to
	// create another one there. Zero, or an informer that does not show all locks, means any number.
	MaxPerNamespace int
	// Waiters bounds how many callers wait. Zero means any number.
	Waiters WaiterLimits
	// ClockSkewAllowance is how long after its expireTime the engine leaves a lock alone, in case
	// its clock is ahead. Zero means not at all.
	ClockSkewAllowance time.Duration
	// Clock stamps grants and judges expiry, such as a [servertime.Clock]. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets the failures that no caller can be told. Zero discards.
	Logger logr.Logger
	// Audit receives the engine's records. Nil means no audit. An engine with IsAdmitted records
	// nothing: admission does.
	Audit audit.Sink
	// Via is the path that the records name. Empty means [audit.Facade].
	Via audit.Via
	// Tracer follows waiting callers in traces. Nil means that nothing does.
	Tracer Tracer
	// Observer is told how long grants took, and of unanswered writes. Nil means none.
	Observer observe.Observer
}

// Engine is the [lock.Backend] that sends requests to the API server. An uncontended acquire is
// one write and no read. So are a release and a renewal through the engine that acquired, and a
// hand-off between two of its callers. Waiting callers send no requests, except that the first of
// a queue reads the lock every five seconds, since the watch may not have shown its end. An engine makes 200 such
// reads a second at most; with more queues than that allows, each reads less often. Safe for concurrent use.
//
// An engine must be started: [Engine.Start] owns the goroutines that finish operations after their
// callers have left.
type Engine struct {
	objects   func(namespace string) Objects
	reach     *reach
	limits    rules.Limits
	allowance time.Duration
	timeout   time.Duration
	clock     clock.WithTicker
	log       logr.Logger
	audit     audit.Sink
	via       audit.Via
	tracer    Tracer
	observer  observe.Observer
	// tellRelease is the function of OnRelease, or nil.
	tellRelease func(context.Context, *v1alpha1.Lock)
	// stream, maxPerNamespace, isAdmitted, isValidated and hasInformer are as in Options.
	stream                               *WatchStream
	maxPerNamespace                      int
	isAdmitted, isValidated, hasInformer bool
	// keyInformer is the informer if it reports only the locks in use; nil if it reports all.
	keyInformer KeyInformer
	// shownAll is closed when the informer has shown all locks that there were when it began; nil if it
	// never does.
	shownAll <-chan struct{}
	// runInformer runs the engine's own informer; nil if it has none.
	runInformer func(context.Context)
	// watchedNamespace is the namespace of that informer. Empty if there is none, or for all namespaces.
	watchedNamespace string
	// started is closed by Start.
	started   chan struct{}
	startOnce sync.Once

	// working ends when the engine has stopped.
	working context.Context // the lifetime of the engine's goroutines
	stop    context.CancelFunc

	lockCache *lockCache
	queues    *queues
	orphans   *orphans
	logged    refusal.Logged
	listed    listVersion
	// lists counts the locks that lists under way ask for.
	lists *semaphore.Weighted

	mu        sync.Mutex
	stopped   bool
	lastStamp time.Time
	// calls counts the acquisitions under way, including those whose callers have left.
	calls sync.WaitGroup
}

var (
	_ lock.Backend  = (*Engine)(nil)
	_ lock.Pager    = (*Engine)(nil)
	_ lock.Streamer = (*Engine)(nil)
)

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
	if options.Tracer == nil {
		options.Tracer = noTracer{}
	}
	if options.IsAdmitted {
		options.Audit = nil
	}
	engine := &Engine{
		reach:     &reach{timers: servertime.Timers(options.Clock)},
		limits:    options.Limits,
		allowance: options.ClockSkewAllowance,
		timeout:   lock.OperationTimeout,
		clock:     options.Clock,
		log:       options.Logger,
		audit:     audit.OrNowhere(options.Audit),
		via:       options.Via,
		tracer:    options.Tracer,
		observer:  observe.OrNothing(options.Observer),
		lists:     semaphore.NewWeighted(maxListed),

		stream:          options.Stream,
		maxPerNamespace: options.MaxPerNamespace,
		isAdmitted:      options.IsAdmitted,
		isValidated:     options.IsValidated,
		hasInformer:     options.Informer != nil,
		started:         make(chan struct{}),
	}
	engine.objects = func(namespace string) Objects { return noted{options.Objects(namespace), engine, namespace} }
	engine.working, engine.stop = context.WithCancel(context.Background())
	engine.lockCache = newLockCache(
		func(name types.NamespacedName, change lock.Change) {
			engine.queues.changed(name, change, engine.clock.Now())
			engine.orphans.shown(change.Lock)
		},
		func(name types.NamespacedName) { engine.queues.forgotten(name) })
	engine.queues = newQueues(engine.lockCache, maxSpread(options.IsAdmitted))
	engine.queues.standing.limits = options.Waiters
	engine.orphans = newOrphans(engine, options.Clock, servertime.Timers(options.Clock), options.Logger)
	engine.keyInformer, _ = options.Informer.(KeyInformer)
	if options.Informer != nil {
		registered, err := options.Informer.AddEventHandler(engine.lockCache)
		if err != nil {
			return nil, fmt.Errorf("lock engine: watch locks: %w", err)
		}
		switch {
		case engine.keyInformer != nil:
		case registered == nil: // It shows all at once.
			engine.lockCache.complete()
		default:
			engine.shownAll = registered.HasSyncedChecker().Done()
		}
	}
	return engine, nil
}

// Start runs until ctx ends. After that every acquire fails, and waiting callers get
// [lock.ErrUnavailable]. Start returns after the acquisitions under way have ended and the engine
// has tried once to end the grants that they left, which takes at most three operation timeouts. It
// implements controller-runtime's manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	e.startOnce.Do(func() { close(e.started) })
	var workers, informers sync.WaitGroup
	if e.runInformer != nil {
		informers.Go(func() { e.runInformer(e.working) })
	}
	informers.Go(func() {
		select {
		case <-e.working.Done():
		case <-e.shownAll:
			e.lockCache.complete()
		}
	})
	informers.Go(func() { e.followWatch(e.working) })
	defer informers.Wait()
	defer e.stop()
	for range orphanWorkers {
		workers.Go(func() { e.orphans.run(e.working) })
	}
	for range lookupWorkers {
		workers.Go(func() { e.orphans.look(e.working) })
	}
	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.queues.stop()
	e.calls.Wait()
	e.lockCache.close()
	e.orphans.finish()
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

// stamp returns the time for a grant made now. No two grants of an engine have the same time: the
// engine recognises its grants by owner and time, and callers may share an owner token.
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

// begin counts an acquisition. It returns false if the engine has stopped.
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

// detached returns a context that outlives the caller's, bounded by the operation timeout: the
// engine follows every write to its end.
func (e *Engine) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
}
