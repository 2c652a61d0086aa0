package rest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// collectFor is how long a feed collects changes before it tells them, but for the first after a pause.
	collectFor = 100 * time.Millisecond
	// maxCollected bounds how many changes are collected.
	maxCollected = 1000
	// keptBatches is how many batches a viewer may be behind: some seconds of them.
	keptBatches = 256
	// snapshotFor is for how many batches a snapshot is given to viewers.
	snapshotFor = 32
	// maxBatchBytes ends a batch, but for the change that passes it.
	maxBatchBytes = 16 << 10
	// maxLinesBytes bounds what is told of those that wait: the longest lines come first.
	maxLinesBytes = 32 << 10
	// groupedLocks are so many of a snapshot as have one text: no lock has more than 16 KiB.
	groupedLocks = 2
	// countEvery is how often those that wait are counted, and maxCounted for how many locks at most.
	countEvery = 500 * time.Millisecond
	maxCounted = 5000
)

const (
	// MaxKeptBytes bounds the batches and the past grants that all feeds of a replica keep together, but for the last batch of
	// each.
	MaxKeptBytes = 12 << 20
	// MaxViewerBytes bounds the text that one viewer of a feed keeps while it does not read: a batch, a part of a snapshot
	// or the lines.
	MaxViewerBytes = maxLinesBytes
)

// feeds are the feeds that have viewers, by namespace; that of all namespaces is under the empty name. Safe for
// concurrent use.
type feeds struct {
	config Config

	// kept is how many bytes of batches all feeds keep, and keptPast how many of past grants.
	kept, keptPast atomic.Int64

	mu   sync.Mutex
	open map[string]*feed
}

// feed follows the locks of a namespace, or of all, for all its viewers: what one more of them costs is the
// writing of a text that is there already. Safe for concurrent use.
type feed struct {
	config    Config
	namespace string
	stop      context.CancelFunc
	// kept and keptPast are those of feeds.
	kept, keptPast *atomic.Int64
	// ended is closed when the feed has no goroutines any more.
	ended chan struct{}
	// viewers needs the mutex of feeds.
	viewers int

	mu sync.Mutex
	// news is closed, and another one made, when there is something to tell.
	news chan struct{}
	// history is nil until the locks were read.
	history *history
	// round counts how often they were.
	round int
	// batches are the last ones, from the first that is kept; next is the number of the next one since the locks were read.
	batches     [keptBatches][]byte
	first, next int
	past        past
	// snapshot is that of the last viewer who came, unless it is old.
	snapshot *snapshot
	lines    told
	// err is why the feed has ended.
	err error
}

// told is a text of which only the last version counts.
type told struct {
	text    []byte
	version int
}

// snapshot is what a sync event tells. It is made once for viewers that come at the same time, as after a restart. It has the
// locks that the process has anyway and no texts: a viewer that does not read keeps it for long.
type snapshot struct {
	position position
	// groups returns the locks in their order.
	groups func() []*group
}

// group are some locks of a snapshot. Safe for concurrent use.
type group struct {
	locks []*v1alpha1.Lock

	mu sync.Mutex
	// text is their JSON, separated by commas, for as long as a viewer writes it.
	text weak.Pointer[[]byte]
}

// position is where a viewer is in a feed.
type position struct {
	round, next int
	// past is the number of the next of the past grants that the viewer is sent before anything else. Those from pastEnd on
	// have ended after its snapshot, so changes tell of them.
	past, pastEnd int
}

// join returns the feed of a namespace for one more viewer. leave must follow.
func (f *feeds) join(namespace string) (joined *feed, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	joined = f.open[namespace]
	if joined == nil {
		joined = f.begin(namespace)
		f.open[namespace] = joined
	}
	joined.viewers++
	return joined, func() { f.leave(joined) }
}

// begin returns a feed that runs until it is stopped.
func (f *feeds) begin(namespace string) *feed {
	ctx, stop := context.WithCancel(context.Background()) // It outlives the call of its first viewer.
	begun := &feed{config: f.config, namespace: namespace, stop: stop, kept: &f.kept, keptPast: &f.keptPast, ended: make(chan struct{}), news: make(chan struct{})}
	go func() {
		defer close(begun.ended)
		err := begun.run(ctx)
		f.mu.Lock()
		f.forget(begun)
		f.mu.Unlock()
		begun.fail(err)
	}()
	return begun
}

// leave ends a feed with its last viewer, and waits for it.
func (f *feeds) leave(left *feed) {
	f.mu.Lock()
	left.viewers--
	isLast := left.viewers == 0
	if isLast {
		f.forget(left) // Under the same mutex: a viewer who joined after this would be ended with the feed.
	}
	f.mu.Unlock()
	if isLast {
		left.stop()
		<-left.ended
	}
}

// forget makes later viewers begin another feed. It needs the mutex.
func (f *feeds) forget(left *feed) {
	if f.open[left.namespace] == left {
		delete(f.open, left.namespace)
	}
}

// run follows the locks until ctx ends.
func (f *feed) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var counting sync.WaitGroup
	defer counting.Wait()
	defer cancel()
	counting.Go(func() { f.countLines(ctx) })
	for {
		following, stop := context.WithCancel(ctx)
		err := f.follow(following)
		stop()
		if !errors.Is(err, errBehind) {
			return err
		}
	}
}

// follow reads the locks, and tells each change.
func (f *feed) follow(ctx context.Context) error {
	begun, err := f.config.Locks.Stream(ctx, f.caller(), "")
	if err != nil {
		return err
	}
	f.begin(begun.Present)
	begun.Present = nil
	timers := servertime.Timers(f.config.Clock)
	var collected []event
	var flush <-chan time.Time
	for {
		var expiry <-chan time.Time
		stop := func() bool { return false }
		if next := f.nextExpiry(); !next.IsZero() {
			timer := timers.NewTimer(max(next.Sub(f.config.sinceReclaimable()), time.Millisecond))
			expiry, stop = timer.C(), timer.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return ctx.Err()
		case <-flush:
			flush = nil
			if len(collected) > 0 {
				f.publish(collected)
				collected, flush = nil, timers.After(collectFor)
			}
		case <-expiry:
			collected = append(collected, f.expire()...)
		case change, isOpen := <-begun.Changes:
			if !isOpen {
				stop()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return errBehind
			}
			collected = append(collected, f.apply(change)...)
		}
		stop()
		if len(collected) > 0 && flush == nil || len(collected) >= maxCollected {
			f.publish(collected)
			collected, flush = nil, timers.After(collectFor)
		}
	}
}

// caller is who a feed reads for. Each viewer is authorised before it joins.
func (f *feed) caller() *access.Caller { return &access.Caller{Namespace: f.namespace} }

func (f *feed) begin(present []*v1alpha1.Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.config.Clock.Now()
	f.history = begin(present, func(*v1alpha1.Lock) bool { return true }, now)
	f.past.begin(f.keptPast, now)
	f.round++
	f.forgetBatches()
	f.next, f.first, f.snapshot = 0, 0, nil
	f.tell()
}

func (f *feed) nextExpiry() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.next()
}

func (f *feed) expire() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := f.history.expire(f.config.sinceReclaimable())
	f.past.remember(ended, f.config.Clock.Now())
	return ended
}

func (f *feed) apply(change lock.Change) []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.config.Clock.Now()
	events := f.history.follow(change, f.config.certain(), now)
	f.past.remember(events, now)
	return events
}
