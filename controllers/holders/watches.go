package holders

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// maxHolderWatches bounds the cost of the watches on holders: each takes some ten kilobytes
	// of the API server and of the operator. Further holders are read periodically.
	maxHolderWatches = 1000
	// unwatchedPeriod is the interval between reads of a holder without a watch.
	unwatchedPeriod = 30 * time.Second
	// gatherFor is how long holders without a watch are gathered before their first read: a
	// replica that becomes the leader finds all of them at once.
	gatherFor = time.Second
	// rewatchPeriod is the pause between the end of a watch and the next one.
	rewatchPeriod = time.Second
	// looksPerSecond and looksAtOnce bound the requests about holders, beside which callers
	// acquire and renew. A look is a read with or without a watch, or a page of a list.
	looksPerSecond, looksAtOnce = 40, 40
	// maxReads is how many reads may be under way, should the API server be slow.
	maxReads = 8
	// readTimeout bounds one of them.
	readTimeout = 10 * time.Second
)

// holderWatches finds out when the objects that hold locks end, by one watch for each object,
// restricted to its name: objects that hold no lock cost nothing. Those for which there is no watch
// are read from time to time, many of one namespace by a list. Safe for concurrent use.
type holderWatches struct {
	client client.WithWatch
	clock  clock.Clock
	// isLeader says whether this replica watches.
	isLeader func() bool
	// slots bounds the number of watches, reads that of reads under way, and rate both.
	slots, reads chan struct{}
	rate         *rate.Limiter
	// wake enqueues a lock whose holder has ended.
	wake func(types.NamespacedName)

	// working ends when the controller does.
	working context.Context // the lifetime of the watches
	stop    context.CancelFunc
	running sync.WaitGroup

	// isAdded has a value if there are holders without a watch that were never read.
	isAdded chan struct{}

	mu       sync.Mutex
	byHolder map[holder]*holderWatch
	byLock   map[types.NamespacedName]holder
}

// holder is an object that holds locks of its namespace.
type holder struct {
	namespace string
	ref       v1alpha1.HolderReference
}

// holderWatch is what is known of a holder.
type holderWatch struct {
	locks map[types.NamespacedName]struct{}
	// cancel ends the goroutine that watches the holder; nil if there is no watch.
	cancel context.CancelFunc
	// isRead says that a holder without a watch has been read.
	isRead bool
	// how the holder ended; empty as long as it is not known to have ended.
	how string
}

func newHolderWatches(client client.WithWatch, clock clock.Clock, limit int, isLeader func() bool, wake func(types.NamespacedName)) *holderWatches {
	watches := &holderWatches{
		client: client, clock: clock, wake: wake, isLeader: isLeader,
		slots: make(chan struct{}, limit), reads: make(chan struct{}, maxReads), rate: rate.NewLimiter(looksPerSecond, looksAtOnce),
		isAdded:  make(chan struct{}, 1),
		byHolder: map[holder]*holderWatch{}, byLock: map[types.NamespacedName]holder{},
	}
	watches.working, watches.stop = context.WithCancel(context.Background())
	return watches
}

// Start reads the holders without a watch until ctx ends. Then it ends all watches and waits for
// them. If another replica leads, it ends the remaining watches after some time. It implements
// controller-runtime's manager.Runnable.
func (w *holderWatches) Start(ctx context.Context) error {
	lastRound := w.clock.Now()
	for ctx.Err() == nil {
		timer := w.clock.NewTimer(unwatchedPeriod - w.clock.Since(lastRound))
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-w.isAdded:
			w.pause(ctx, gatherFor)
			select {
			case <-w.isAdded: // The survey finds those, too.
			default:
			}
		}
		timer.Stop()
		isRound := w.clock.Since(lastRound) >= unwatchedPeriod
		if isRound {
			lastRound = w.clock.Now()
		}
		if w.leaveUnlessLeading() {
			w.survey(ctx, isRound)
		}
	}
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// pause waits and reports whether ctx is still in force.
func (w *holderWatches) pause(ctx context.Context, by time.Duration) bool {
	timer := w.clock.NewTimer(by)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// awaitTurn waits until the rate permits another look. It returns false if ctx ends first.
func (w *holderWatches) awaitTurn(ctx context.Context) bool {
	now := w.clock.Now()
	turn := w.rate.ReserveN(now, 1)
	if delay := turn.DelayFrom(now); delay > 0 && !w.pause(ctx, delay) {
		turn.CancelAt(w.clock.Now())
	}
	return ctx.Err() == nil
}

// leaveUnlessLeading reports whether this replica leads, and forgets all holders if not. It checks
// under the mutex: a replica that leads again observes all locks, and must keep these watches.
func (w *holderWatches) leaveUnlessLeading() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isLeader() {
		return true
	}
	for lock := range w.byLock {
		w.leave(lock)
	}
	return false
}

// NeedLeaderElection is false: which replica watches is decided lock by lock.
func (w *holderWatches) NeedLeaderElection() bool { return false }

// isObserved reports whether the holder is looked after already.
func (w *holderWatches) isObserved(of holder) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byHolder[of] != nil
}

// observe returns how the holder of the lock ended, or "" if it is not known to have. From then
// on the lock is enqueued when the holder ends.
func (w *holderWatches) observe(lock types.NamespacedName, of holder) (how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if former, ok := w.byLock[lock]; ok && former != of {
		w.leave(lock)
	}
	watched := w.byHolder[of]
	if watched == nil {
		if w.working.Err() != nil {
			return ""
		}
		watched = &holderWatch{locks: map[types.NamespacedName]struct{}{}}
		w.byHolder[of] = watched
		if !w.watch(of, watched) {
			w.signal()
		}
	}
	watched.locks[lock] = struct{}{}
	w.byLock[lock] = of
	return watched.how
}

// watch has a goroutine watch the holder, and reports whether there was room for it. The caller
// holds the mutex.
func (w *holderWatches) watch(of holder, watched *holderWatch) bool {
	if w.working.Err() != nil {
		return false
	}
	select {
	case w.slots <- struct{}{}:
	default:
		return false
	}
	ctx, cancel := context.WithCancel(w.working)
	watched.cancel = cancel
	w.running.Go(func() {
		defer func() { <-w.slots }()
		defer cancel()
		w.follow(ctx, of, watched)
	})
	return true
}

// signal has the holders without a watch read that never were.
func (w *holderWatches) signal() {
	select {
	case w.isAdded <- struct{}{}:
	default:
	}
}

// forget ends the watch of the lock, unless another lock needs it.
func (w *holderWatches) forget(lock types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(lock)
}

func (w *holderWatches) leave(lock types.NamespacedName) {
	of, ok := w.byLock[lock]
	if !ok {
		return
	}
	delete(w.byLock, lock)
	watched := w.byHolder[of]
	delete(watched.locks, lock)
	if len(watched.locks) == 0 {
		if watched.cancel != nil {
			watched.cancel()
		}
		delete(w.byHolder, of)
	}
}

// follow watches the holder until it has ended, ctx has, or it cannot be watched.
func (w *holderWatches) follow(ctx context.Context, of holder, watched *holderWatch) {
	initial := wait.Backoff{Duration: rewatchPeriod, Factor: 2, Jitter: 0.2, Steps: 5, Cap: reaper.MaxBackoff}
	backoff := initial
	for w.awaitTurn(ctx) {
		how, isWatched, err := w.look(ctx, of)
		pause := wait.Jitter(rewatchPeriod, 0.2)
		switch {
		case how != "":
			w.ended(watched, how)
			return
		case err != nil:
			pause = backoff.Step()
		case !isWatched:
			w.unwatch(watched)
			return
		default:
			backoff = initial
		}
		w.pause(ctx, pause)
	}
}

// unwatch leaves the holder to periodic reads.
func (w *holderWatches) unwatch(watched *holderWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watched.cancel, watched.isRead = nil, true
}

func (w *holderWatches) ended(watched *holderWatch, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watched.how = how
	for lock := range watched.locks {
		w.wake(lock)
	}
}

// look reads and watches the holder. It returns how the holder ended, or "" when the watch is
// over or not possible. The watch begins before the read: no end is missed between them.
func (w *holderWatches) look(ctx context.Context, of holder) (how string, isWatched bool, err error) {
	following, watchErr := w.client.Watch(ctx, listOf(of), client.InNamespace(of.namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.ref.Name)})
	if watchErr == nil {
		defer following.Stop()
	}
	how, err = w.read(ctx, of)
	switch {
	case how != "":
		return how, true, nil
	case err != nil:
		return "", false, unlessFutile(err)
	case watchErr != nil:
		return "", false, unlessFutile(watchErr)
	}
	return followed(of, following.ResultChan())
}

// read returns how the holder ended, according to etcd, or "".
func (w *holderWatches) read(ctx context.Context, of holder) (how string, err error) {
	select {
	case w.reads <- struct{}{}:
		defer func() { <-w.reads }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object := holderref.ObjectOf(&of.ref)
	err = w.client.Get(ctx, client.ObjectKey{Namespace: of.namespace, Name: of.ref.Name}, object)
	switch {
	case refusal.IsNotFound(err):
		return howDeleted, nil
	case err != nil:
		return "", err
	}
	return howEnded(of, object), nil
}

// followed returns how the holder ended according to the events of its watch, or "" when they are
// over.
func followed(of holder, events <-chan watch.Event) (how string, isWatched bool, err error) {
	for event := range events {
		switch event.Type {
		case watch.Error:
			return "", true, apierrors.FromObject(event.Object)
		case watch.Deleted:
			if isHolder(of, event.Object) {
				return howDeleted, true, nil
			}
		case watch.Added, watch.Modified:
			// A watch may begin in the past. Another object of the name existed before the
			// read that found the holder, or comes after the event of its deletion.
			if !isHolder(of, event.Object) {
				continue
			}
			if how = howEnded(of, event.Object); how != "" {
				return how, true, nil
			}
		default:
		}
	}
	return "", true, nil
}

// unlessFutile returns nil for errors that an early repetition does not resolve, such as a
// missing right.
func unlessFutile(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || errors.Is(err, apianswers.ErrNotServed) || apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// howEnded returns how the holder ended, given the object of its name.
func howEnded(of holder, object runtime.Object) string {
	if !isHolder(of, object) {
		return howDeleted // Another object has its name.
	}
	if current, ok := object.(client.Object); ok {
		return holderref.HowEnded(current)
	}
	return ""
}

func isHolder(of holder, object runtime.Object) bool {
	named, ok := object.(metav1.Object)
	return ok && named.GetUID() == of.ref.UID
}

// listOf returns the kind of list to watch: all of a Job, since its conditions count, and
// only the metadata of other kinds. Another watch shows that a Pod has succeeded or failed.
func listOf(of holder) client.ObjectList {
	if rules.IsJob(&of.ref) {
		return &batchv1.JobList{}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(of.ref.APIVersion, of.ref.Kind+"List"))
	return list
}
