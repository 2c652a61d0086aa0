package holders

import (
	"context"
	"sync"
	"time"

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
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// maxHolderWatches bounds the cost of the watches on holders: each takes some ten kilobytes
	// of the API server and of the operator. Further holders are read periodically, besides
	// what the garbage collector does.
	maxHolderWatches = 1000
	// unwatchedPeriod is the interval between reads of a holder without a watch.
	unwatchedPeriod = 30 * time.Second
	// rewatchPeriod is the pause between the end of a watch and the next one.
	rewatchPeriod = time.Second
)

// holderWatches finds out when the objects that hold locks end, by one watch for each object,
// restricted to its name: objects that hold no lock cost nothing. Safe for concurrent use.
type holderWatches struct {
	client client.WithWatch
	clock  clock.Clock
	// isLeader says whether this replica watches.
	isLeader func() bool
	// slots bounds the number of watches.
	slots chan struct{}
	// wake enqueues a lock whose holder has ended.
	wake func(types.NamespacedName)

	// working ends when the controller does.
	working context.Context //nolint:containedctx // the lifetime of the watches
	stop    context.CancelFunc
	running sync.WaitGroup

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
	locks  map[types.NamespacedName]struct{}
	cancel context.CancelFunc
	// how the holder ended; empty as long as it is not known to have ended.
	how string
}

func newHolderWatches(client client.WithWatch, clock clock.Clock, limit int, isLeader func() bool, wake func(types.NamespacedName)) *holderWatches {
	watches := &holderWatches{
		client: client, clock: clock, wake: wake, isLeader: isLeader, slots: make(chan struct{}, limit),
		byHolder: map[holder]*holderWatch{}, byLock: map[types.NamespacedName]holder{},
	}
	watches.working, watches.stop = context.WithCancel(context.Background())
	return watches
}

// Start ends all watches when ctx ends, and waits for them. If another replica leads, it ends
// the remaining watches after some time. It implements controller-runtime's manager.Runnable.
func (w *holderWatches) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.clock.After(unwatchedPeriod):
			w.leaveUnlessLeading()
		}
	}
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// leaveUnlessLeading checks the leadership under the mutex: a replica that leads again
// observes all locks, and must keep these watches.
func (w *holderWatches) leaveUnlessLeading() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isLeader() {
		return
	}
	for lock := range w.byLock {
		w.leave(lock)
	}
}

// NeedLeaderElection is false: which replica watches is decided lock by lock.
func (w *holderWatches) NeedLeaderElection() bool { return false }

// isWatched reports whether there is already a watch on the holder.
func (w *holderWatches) isWatched(of holder) bool {
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
		ctx, cancel := context.WithCancel(w.working)
		watched = &holderWatch{locks: map[types.NamespacedName]struct{}{}, cancel: cancel}
		w.byHolder[of] = watched
		w.running.Go(func() {
			defer cancel()
			w.follow(ctx, of, watched)
		})
	}
	watched.locks[lock] = struct{}{}
	w.byLock[lock] = of
	return watched.how
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
		watched.cancel()
		delete(w.byHolder, of)
	}
}

// follow watches the holder until it has ended or ctx has.
func (w *holderWatches) follow(ctx context.Context, of holder, watched *holderWatch) {
	initial := wait.Backoff{Duration: rewatchPeriod, Factor: 2, Jitter: 0.2, Steps: 5, Cap: reaper.MaxBackoff}
	backoff := initial
	for ctx.Err() == nil {
		how, isWatched, err := w.look(ctx, of)
		if how != "" {
			w.ended(watched, how)
			return
		}
		var pause time.Duration
		switch {
		case err != nil:
			pause = backoff.Step()
		case !isWatched:
			pause = wait.Jitter(unwatchedPeriod, 0.2)
		default:
			backoff, pause = initial, wait.Jitter(rewatchPeriod, 0.2)
		}
		select {
		case <-ctx.Done():
		case <-w.clock.After(pause):
		}
	}
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
	var events <-chan watch.Event
	var watchErr error
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
		var following watch.Interface
		if following, watchErr = w.client.Watch(ctx, listOf(of), client.InNamespace(of.namespace),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.ref.Name)}); watchErr == nil {
			defer following.Stop()
			events = following.ResultChan()
		}
	default:
	}
	object := holderref.ObjectOf(&of.ref)
	err = w.client.Get(ctx, client.ObjectKey{Namespace: of.namespace, Name: of.ref.Name}, object)
	switch {
	case reaper.IsGone(err):
		return howDeleted, true, nil
	case err != nil:
		return "", false, unlessFutile(err)
	}
	if how = howEnded(of, object); how != "" || events == nil {
		return how, false, unlessFutile(watchErr)
	}
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
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
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
