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
	// maxHolderWatches bounds what the holders of locks cost the API server and the
	// operator; each watch takes some ten kilobytes of either. Beyond it, objects are looked
	// for from time to time, besides what the garbage collector does.
	maxHolderWatches = 1000
	// unwatchedPeriod is how often an object is looked for that cannot be watched.
	unwatchedPeriod = 30 * time.Second
	// rewatchPeriod is how long after the end of a watch the next one begins.
	rewatchPeriod = time.Second
)

// holderWatches knows what has become of the objects that locks are held for, by one
// watch on each object, narrowed to its name: objects that hold nothing cost nothing. Safe for
// concurrent use.
type holderWatches struct {
	client client.WithWatch
	clock  clock.Clock
	// isLeader says whether this replica is to watch.
	isLeader func() bool
	// slots has room for as many watches as there may be.
	slots chan struct{}
	// wake is told each lock whose holder has ended.
	wake func(types.NamespacedName)

	// working ends with the controller.
	working context.Context //nolint:containedctx // the lifetime of the watches
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	byHolder map[holder]*holderWatch
	byLock   map[types.NamespacedName]holder
}

// holder is an object that locks of its namespace are held for.
type holder struct {
	namespace string
	ref       v1alpha1.HolderReference
}

// holderWatch is what is known of a holder.
type holderWatch struct {
	locks  map[types.NamespacedName]struct{}
	cancel context.CancelFunc
	// how the holder has ended; empty while it is there, or not known not to be.
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

// Start ends all watches with ctx, and waits for that. Some time after another replica has
// come to lead, it ends those that this one has left. It implements controller-runtime's
// manager.Runnable.
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

// leaveUnlessLeading asks under the mutex: a replica that leads again looks at all locks, and
// what it then observes must not be left.
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

// isWatched reports whether another lock has the holder watched already.
func (w *holderWatches) isWatched(of holder) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byHolder[of] != nil
}

// observe returns how the holder of the lock has ended, or nothing if it is not known to
// have. From then on the lock is woken when it ends.
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

// forget ends the watch that only this lock has had need of.
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

// follow looks after the holder until it has ended or ctx has.
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

// look returns how the holder has ended, or nothing when the watch on it is over or there
// can be none. The watch begins before the read, so that no end is missed between them.
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
			// A watch may begin in the past. A namesake was there before the read that found
			// the holder, or comes after an event that tells of its deletion.
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

// unlessFutile leaves out what trying again soon does not mend, such as a right that an
// administrator has not given.
func unlessFutile(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// howEnded returns how the holder has ended whose name the object has.
func howEnded(of holder, object runtime.Object) string {
	if !isHolder(of, object) {
		return howDeleted // Another object has its name.
	}
	if there, ok := object.(client.Object); ok {
		return holderref.HowEnded(there)
	}
	return ""
}

func isHolder(of holder, object runtime.Object) bool {
	named, ok := object.(metav1.Object)
	return ok && named.GetUID() == of.ref.UID
}

// listOf returns what to watch of the holder: all of a Job, since its conditions count, and
// only the metadata of others. That a Pod has succeeded or failed is told by another watch.
func listOf(of holder) client.ObjectList {
	if rules.IsJob(&of.ref) {
		return &batchv1.JobList{}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(of.ref.APIVersion, of.ref.Kind+"List"))
	return list
}
