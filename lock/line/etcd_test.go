package line_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// etcd keeps the locks of one namespace, with the conditions of the API server.
type etcd struct {
	mu       sync.Mutex
	revision int
	objects  map[string]*v1alpha1.Lock
	// writes and reads count the requests.
	writes, reads int
	watches       []*watch
	// written is when a lock was written last. Lapsed are the owners whose locks others have taken over, without those
	// that had ended when they were written.
	written time.Time
	lapsed  []string
	// orphans are the owners for whom a write was done after its replica had ended, and unsure the replicas whose writes for
	// an owner went unanswered.
	orphans []string
	unsure  map[string][]*replica
}

// watch is what one replica sees, some time later.
type watch struct {
	etcd     *etcd
	delay    time.Duration
	handlers []cache.ResourceEventHandler
	// events are sent in order.
	events chan func(cache.ResourceEventHandler)
	// filled is closed when it has shown what there was when it began. Nil means that there was nothing.
	filled chan struct{}
}

func newEtcd() *etcd { return &etcd{objects: map[string]*v1alpha1.Lock{}} }

// watch returns an informer that shows each change after the delay, until ctx ends. It shows what there is when it
// has been filled.
func (e *etcd) watch(ctx context.Context, delay, filling time.Duration) *watch {
	w := &watch{etcd: e, delay: delay, events: make(chan func(cache.ResourceEventHandler), 100_000)}
	if filling == 0 {
		e.mu.Lock()
		e.watches = append(e.watches, w)
		e.mu.Unlock()
	} else {
		w.filled = make(chan struct{})
		time.AfterFunc(filling, func() { e.fill(w) })
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				e.end(w)
				return
			case event := <-w.events:
				for _, handler := range w.handlers {
					event(handler)
				}
			}
		}
	}()
	return w
}

// AddEventHandler implements [engine.Informer].
func (w *watch) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	w.handlers = append(w.handlers, handler)
	if w.filled == nil {
		return nil, nil // the registration is not used
	}
	return w, nil
}

// HasSynced implements [cache.ResourceEventHandlerRegistration].
func (w *watch) HasSynced() bool { return cache.IsDone(w) }

// HasSyncedChecker implements [cache.ResourceEventHandlerRegistration].
func (w *watch) HasSyncedChecker() cache.DoneChecker { return w }

// Name implements [cache.DoneChecker].
func (w *watch) Name() string { return "watch" }

// Done implements [cache.DoneChecker].
func (w *watch) Done() <-chan struct{} { return w.filled }

// fill shows what there is, and from then on each change.
func (e *etcd) fill(w *watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watches = append(e.watches, w)
	var present []*v1alpha1.Lock
	for _, object := range e.objects {
		present = append(present, object.DeepCopy())
	}
	time.AfterFunc(w.delay, func() {
		for _, object := range present {
			w.events <- func(handler cache.ResourceEventHandler) { handler.OnAdd(object, true) }
		}
		w.events <- func(cache.ResourceEventHandler) { close(w.filled) }
	})
}

// end shows nothing any more.
func (e *etcd) end(w *watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watches = slices.DeleteFunc(e.watches, func(other *watch) bool { return other == w })
}

func (e *etcd) tell(event func(cache.ResourceEventHandler)) {
	for _, watch := range e.watches {
		time.AfterFunc(watch.delay, func() { watch.events <- event })
	}
}

// reach are the requests of a replica, which have no effect once it is dead.
type reach struct {
	*etcd
	of *replica
}

// fate is what becomes of a write.
type fate int

const (
	answered fate = iota
	// doneUnanswered is done, and lost is not; doneLater is done some time after the error.
	doneUnanswered
	lost
	doneLater
	fateCount
)

const lateWrite = 1400 * time.Millisecond

// meet does the write, unless it is lost, and reports whether it is answered.
func (r reach) meet(owner string, write func()) bool {
	fates := r.of.fates.Load()
	if fates == nil {
		write()
		return true
	}
	switch (*fates)() {
	case doneUnanswered:
		r.etcd.isUnsure(owner, r.of)
		write()
	case lost:
	case doneLater:
		r.etcd.isUnsure(owner, r.of)
		time.AfterFunc(cmp.Or(time.Duration(r.of.late.Load()), lateWrite), func() {
			if r.of.hasEnded.Load() {
				r.etcd.isOrphan(owner)
			}
			write()
		})
	default:
		write()
		return true
	}
	return false
}

var errUnanswered = apierrors.NewTimeoutError("the write is not answered", 0)

var errDead = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

func (r reach) begin(verb string) error {
	if before := r.of.before.Load(); before != nil {
		(*before)(verb)
	}
	if r.of.isDead.Load() {
		return errDead
	}
	return nil
}

// Create implements [engine.Objects].
func (r reach) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (stored *v1alpha1.Lock, err error) {
	if err := r.begin("create"); err != nil {
		return nil, err
	}
	if !r.meet(object.Spec.Owner, func() { stored, err = r.etcd.Create(ctx, object, options) }) {
		return nil, errUnanswered
	}
	return stored, err
}

// Update implements [engine.Objects].
func (r reach) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (stored *v1alpha1.Lock, err error) {
	if err := r.begin("update"); err != nil {
		return nil, err
	}
	if !r.meet(object.Spec.Owner, func() { stored, err = r.etcd.Update(ctx, object, options) }) {
		return nil, errUnanswered
	}
	return stored, err
}

// Delete implements [engine.Objects].
func (r reach) Delete(ctx context.Context, name string, options metav1.DeleteOptions) (err error) {
	if err := r.begin("delete"); err != nil {
		return err
	}
	if !r.meet("", func() { err = r.etcd.Delete(ctx, name, options) }) {
		return errUnanswered
	}
	return err
}

// Get implements [engine.Objects].
func (r reach) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error) {
	if err := r.begin("get"); err != nil {
		return nil, err
	}
	return r.etcd.Get(ctx, name, options)
}

// isOrphan records that no replica knows of a write for the owner.
func (e *etcd) isOrphan(owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orphans = append(e.orphans, owner)
}

// isUnsure records that a write of the replica for the owner goes unanswered.
func (e *etcd) isUnsure(owner string, of *replica) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unsure == nil {
		e.unsure = map[string][]*replica{}
	}
	e.unsure[owner] = append(e.unsure[owner], of)
}

func (e *etcd) store(object *v1alpha1.Lock) *v1alpha1.Lock {
	e.revision++
	if before := e.objects[object.Name]; before != nil && before.Spec.Owner != object.Spec.Owner && before.Spec.ExpireTime.After(e.written) && time.Now().After(before.Spec.ExpireTime.Time) {
		e.lapsed = append(e.lapsed, before.Spec.Owner)
	}
	e.written = time.Now()
	object = object.DeepCopy()
	object.ResourceVersion = strconv.Itoa(e.revision)
	e.objects[object.Name] = object
	e.tell(func(handler cache.ResourceEventHandler) { handler.OnUpdate(nil, object.DeepCopy()) })
	return object.DeepCopy()
}

// Create implements [engine.Objects].
func (e *etcd) Create(_ context.Context, object *v1alpha1.Lock, _ metav1.CreateOptions) (*v1alpha1.Lock, error) {
	<-time.After(time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	if e.objects[object.Name] != nil {
		return nil, apierrors.NewAlreadyExists(v1alpha1.Resource("locks"), object.Name)
	}
	object = object.DeepCopy()
	object.UID = types.UID("uid-" + strconv.Itoa(e.revision+1))
	return e.store(object), nil
}

// Update implements [engine.Objects].
func (e *etcd) Update(_ context.Context, object *v1alpha1.Lock, _ metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	<-time.After(time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	switch current := e.objects[object.Name]; {
	case current == nil:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("locks"), object.Name)
	case current.ResourceVersion != object.ResourceVersion:
		return nil, apierrors.NewConflict(v1alpha1.Resource("locks"), object.Name, errors.New("changed"))
	}
	return e.store(object), nil
}

// Delete implements [engine.Objects].
func (e *etcd) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	<-time.After(time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	current := e.objects[name]
	if current == nil {
		return apierrors.NewNotFound(v1alpha1.Resource("locks"), name)
	}
	if *options.Preconditions.UID != current.UID || *options.Preconditions.ResourceVersion != current.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.Resource("locks"), name, errors.New("changed"))
	}
	delete(e.objects, name)
	e.revision++
	gone := current.DeepCopy()
	gone.ResourceVersion = strconv.Itoa(e.revision)
	e.tell(func(handler cache.ResourceEventHandler) { handler.OnDelete(gone) })
	return nil
}

// Get implements [engine.Objects].
func (e *etcd) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1alpha1.Lock, error) {
	<-time.After(time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads++
	if e.objects[name] == nil {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("locks"), name)
	}
	return e.objects[name].DeepCopy(), nil
}

// List implements [engine.Objects].
func (e *etcd) List(context.Context, metav1.ListOptions) (*v1alpha1.LockList, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads++
	found := &v1alpha1.LockList{}
	for _, object := range e.objects {
		found.Items = append(found.Items, *object.DeepCopy())
	}
	return found, nil
}

// requests returns how many writes and reads were made.
func (e *etcd) requests() (writes, reads int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writes, e.reads
}

// owner returns the owner of the lock, or "".
func (e *etcd) owner() string {
	owner, _ := e.holder()
	return owner
}

// holder returns the owner of the lock, or "", and the fencing token.
func (e *etcd) holder() (owner string, fencing int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.objects[key.ObjectName()]
	if held == nil {
		return "", 0
	}
	fencing, _ = held.FencingToken()
	return held.Spec.Owner, fencing
}

// expires returns until when the lock is held; zero if it is not.
func (e *etcd) expires() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if held := e.objects[key.ObjectName()]; held != nil {
		return held.Spec.ExpireTime.Time
	}
	return time.Time{}
}
