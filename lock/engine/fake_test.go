package engine_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

var (
	// errLostAnswer is a broken connection: the write may have happened.
	errLostAnswer = errors.New("EOF")
	// errRefused is a connection that was never made: nothing was sent.
	errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
)

// etcd keeps the locks of one namespace and has the conditions of the API server.
// Before and after each request a fault can be injected.
type etcd struct {
	mu       sync.Mutex
	revision int
	objects  map[string]*v1alpha1.Lock
	requests []string
	// lastSent is the object of the last write that was tried.
	lastSent *v1alpha1.Lock

	faults faults
	// handlers receive every change; see AddEventHandler.
	handlers []cache.ResourceEventHandler
	isMute   bool
}

// AddEventHandler implements [lock.Informer]: it tells of changes at once, unless the
// watch is down.
func (e *etcd) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handlers = append(e.handlers, handler)
	return nil, nil // the registration is not used
}

// mute takes the watch down or up again. Changes in between are not reported.
func (e *etcd) mute(isMute bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isMute = isMute
}

func (e *etcd) tell(event func(cache.ResourceEventHandler)) {
	if e.isMute {
		return
	}
	for _, handler := range e.handlers {
		event(handler)
	}
}

// faults are injected around each request. A nil hook injects nothing.
type faults struct {
	// before is called ahead of a request; an error keeps it from happening.
	before func(verb string) error
	// after is called behind a request that happened; an error replaces its answer.
	after func(verb string) error
}

func newEtcd() *etcd { return &etcd{objects: map[string]*v1alpha1.Lock{}} }

// inject replaces the faults.
func (e *etcd) inject(faults faults) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = faults
}

func (e *etcd) locks(string) engine.Objects { return e }

// do runs one request under the mutex.
func (e *etcd) do(ctx context.Context, verb string, request func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	e.requests = append(e.requests, verb)
	faults := e.faults
	e.mu.Unlock()
	if faults.before != nil {
		if err := faults.before(verb); err != nil {
			return err
		}
	}
	e.mu.Lock()
	err := request()
	e.mu.Unlock()
	if err != nil || faults.after == nil {
		return err
	}
	return faults.after(verb)
}

// refuseInvalid has two rules of the API server: no lock is stored without an owner, and none that is
// the copy of a cache.
func refuseInvalid(object *v1alpha1.Lock) error {
	problems := apivalidation.ValidateAnnotations(object.Annotations, field.NewPath("metadata", "annotations"))
	if object.Spec.Owner == "" {
		problems = append(problems, field.Required(field.NewPath("spec", "owner"), ""))
	}
	if len(problems) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), object.Name, problems)
}

func (e *etcd) store(object *v1alpha1.Lock) *v1alpha1.Lock {
	e.revision++
	object = object.DeepCopy()
	object.ResourceVersion = strconv.Itoa(e.revision)
	object.ManagedFields = managedFields(e.objects[object.Name], object)
	e.objects[object.Name] = object
	e.tell(func(handler cache.ResourceEventHandler) { handler.OnUpdate(nil, rules.Stripped(object.DeepCopy())) })
	return object.DeepCopy()
}

// managedFields keeps the stored record of who sets which field, unless the write resets it.
func managedFields(stored, written *v1alpha1.Lock) []metav1.ManagedFieldsEntry {
	switch {
	case len(written.ManagedFields) == 1 && written.ManagedFields[0] == metav1.ManagedFieldsEntry{}:
		return nil
	case len(written.ManagedFields) == 0 && stored != nil:
		return stored.ManagedFields
	}
	return written.ManagedFields
}

func (e *etcd) discard(name string) {
	object := e.objects[name]
	if object == nil {
		return
	}
	delete(e.objects, name)
	e.revision++
	object = object.DeepCopy()
	object.ResourceVersion = strconv.Itoa(e.revision)
	e.tell(func(handler cache.ResourceEventHandler) { handler.OnDelete(rules.Stripped(object)) })
}

func (e *etcd) Create(ctx context.Context, object *v1alpha1.Lock, _ metav1.CreateOptions) (stored *v1alpha1.Lock, err error) {
	e.send(object)
	err = e.do(ctx, "create", func() error {
		if err := refuseInvalid(object); err != nil {
			return err
		}
		if e.objects[object.Name] != nil {
			return apierrors.NewAlreadyExists(v1alpha1.Resource("locks"), object.Name)
		}
		object = object.DeepCopy()
		object.UID = types.UID("uid-" + strconv.Itoa(e.revision+1))
		object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "creator", Operation: metav1.ManagedFieldsOperationUpdate}}
		stored = e.store(object)
		return nil
	})
	return stored, err
}

func (e *etcd) Update(ctx context.Context, object *v1alpha1.Lock, _ metav1.UpdateOptions) (stored *v1alpha1.Lock, err error) {
	e.send(object)
	err = e.do(ctx, "update", func() error {
		if err := refuseInvalid(object); err != nil {
			return err
		}
		switch current := e.objects[object.Name]; {
		case current == nil:
			return apierrors.NewNotFound(v1alpha1.Resource("locks"), object.Name)
		case object.ResourceVersion == "" || current.ResourceVersion != object.ResourceVersion:
			return apierrors.NewConflict(v1alpha1.Resource("locks"), object.Name, errors.New("changed"))
		}
		stored = e.store(object)
		return nil
	})
	return stored, err
}

func (e *etcd) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return e.do(ctx, "delete", func() error {
		current := e.objects[name]
		if current == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("locks"), name)
		}
		conditions := options.Preconditions
		if conditions == nil || conditions.UID == nil || conditions.ResourceVersion == nil ||
			*conditions.UID != current.UID || *conditions.ResourceVersion != current.ResourceVersion {
			return apierrors.NewConflict(v1alpha1.Resource("locks"), name, errors.New("precondition failed"))
		}
		e.discard(name)
		return nil
	})
}

func (e *etcd) Get(ctx context.Context, name string, _ metav1.GetOptions) (found *v1alpha1.Lock, err error) {
	err = e.do(ctx, "get", func() error {
		current := e.objects[name]
		if current == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("locks"), name)
		}
		found = current.DeepCopy()
		return nil
	})
	return found, err
}

func (e *etcd) List(ctx context.Context, options metav1.ListOptions) (found *v1alpha1.LockList, err error) {
	err = e.do(ctx, "list", func() error {
		found = &v1alpha1.LockList{}
		for _, name := range slices.Sorted(maps.Keys(e.objects)) {
			object := e.objects[name]
			switch {
			case name <= options.Continue:
			case options.FieldSelector != "" && options.FieldSelector != "spec.owner="+object.Spec.Owner && options.FieldSelector != "spec.holder="+object.Spec.Holder:
			case options.Limit > 0 && len(found.Items) == int(options.Limit):
				found.Continue = found.Items[len(found.Items)-1].Name
				return nil
			default:
				found.Items = append(found.Items, *object.DeepCopy())
			}
		}
		return nil
	})
	return found, err
}

// happen stores an object whose create went unanswered, during the outage.
func (e *etcd) happen(late *v1alpha1.Lock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	late = late.DeepCopy()
	late.UID = types.UID("uid-" + strconv.Itoa(e.revision+1))
	e.store(late)
}

// touch changes the object without changing the grant, as a label edit does.
func (e *etcd) touch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	object := e.objects[name].DeepCopy()
	token, err := object.FencingToken()
	if err != nil {
		panic(err)
	}
	object.Spec.FencingToken = &token
	e.store(object)
}

func (e *etcd) send(object *v1alpha1.Lock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastSent = object.DeepCopy()
}

// sent returns the object of the last write that was tried.
func (e *etcd) sent() *v1alpha1.Lock {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastSent
}

// annotate sets an annotation of a user. Admission records the fencing token.
func (e *etcd) annotate(annotation, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	object := e.objects[name].DeepCopy()
	if token, err := object.FencingToken(); err == nil {
		object.Spec.FencingToken = &token
	}
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, annotation, value)
	e.store(object)
}

// apply writes the lock as a user does who applies its manifest on the server's side.
func (e *etcd) apply() {
	e.mu.Lock()
	object := e.objects[name]
	object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{Manager: "flux", Operation: metav1.ManagedFieldsOperationApply})
	e.mu.Unlock()
	e.annotate(v1alpha1.AcquisitionAnnotation, "as stored")
}

// managers are those of the fields of the lock.
func (e *etcd) managers() (managers []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, entry := range e.objects[name].ManagedFields {
		managers = append(managers, entry.Manager)
	}
	return managers
}

// annotations returns those of the lock.
func (e *etcd) annotations() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.objects[name].Annotations)
}

// remove deletes the lock, as the reaper does.
func (e *etcd) remove() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.discard(name)
}

// owner returns the owner of the object under the name, or "".
func (e *etcd) owner(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.objects[name] == nil {
		return ""
	}
	return e.objects[name].Spec.Owner
}

// version returns the resourceVersion of the object under the name, or "".
func (e *etcd) version(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.objects[name] == nil {
		return ""
	}
	return e.objects[name].ResourceVersion
}

// made returns and forgets the requests made so far.
func (e *etcd) made() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	made := e.requests
	e.requests = nil
	return made
}

// writes is made without the reads, of which each queue makes one every five seconds.
func (e *etcd) writes() []string {
	return slices.DeleteFunc(e.made(), func(verb string) bool { return verb == "get" })
}

// once returns a hook that fails the first request of a verb.
func once(verb string, err error) func(string) error {
	var mu sync.Mutex
	return func(got string) error {
		mu.Lock()
		defer mu.Unlock()
		if got != verb || err == nil {
			return nil
		}
		failure := err
		err = nil
		return failure
	}
}

// pass advances the clock of a synctest bubble; no test really waits.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // steps the clock of the bubble
}

// always returns a hook that fails every request.
func always(err error) func(string) error {
	return func(string) error { return err }
}

// answering dates its answers.
type answering struct {
	engine.Objects
	local clock.PassiveClock
	clock *servertime.Clock
}

// asked returns the function to call after the answer.
func (a answering) asked() func() {
	sent := a.local.Now()
	return func() { a.clock.Observe(sent, a.local.Now(), time.Now().Truncate(time.Second)) }
}

func (a answering) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error) {
	answered := a.asked()
	defer answered()
	return a.Objects.Create(ctx, object, options)
}

func (a answering) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	answered := a.asked()
	defer answered()
	return a.Objects.Update(ctx, object, options)
}

func (a answering) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error) {
	answered := a.asked()
	defer answered()
	return a.Objects.Get(ctx, name, options)
}

// bubble runs a test with an engine in a bubble of its own.
func bubble(t *testing.T, run func(*testing.T, *etcd, *engine.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		run(t, etcd, start(t, etcd))
	})
}

// bubbles is bubble for one of several cases.
func bubbles(t *testing.T, title string, run func(*testing.T, *etcd, *engine.Engine)) {
	t.Helper()
	t.Run(title, func(t *testing.T) { bubble(t, run) })
}

// bubbleOf is bubbles without an engine.
func bubbleOf(t *testing.T, title string, run func(*testing.T)) {
	t.Helper()
	t.Run(title, func(t *testing.T) { synctest.Test(t, run) })
}

// failing returns a hook that fails the requests of a verb.
func failing(verb string, err error) func(string) error {
	return func(got string) error {
		if got == verb {
			return err
		}
		return nil
	}
}

// mustMake checks the requests since the last look.
func (e *etcd) mustMake(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, e.made()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func (e *etcd) mustBeFree(t *testing.T) {
	t.Helper()
	if owner := e.owner(name); owner != "" {
		t.Errorf("%q holds the lock", owner)
	}
}

// renew renews the grant to a.
func renew(t *testing.T, engine *engine.Engine) {
	t.Helper()
	if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
		t.Fatal(err)
	}
}

// queued lets a caller wait, and returns where its answer comes.
func queued(t *testing.T, engine *engine.Engine, request lock.Request) chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	queueUp(t.Context(), t, engine, request, answers)
	return answers
}

// mustGet waits for the lock of a caller.
func mustGet(t *testing.T, answers <-chan answer) {
	t.Helper()
	if got := <-answers; got.err != nil {
		t.Fatal(got.err)
	}
}
