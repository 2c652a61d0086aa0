package jobgate

import (
	"context"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	space    = "default"
	operator = "system:serviceaccount:forrst-system:lock-operator"
)

var key = v1alpha1.FullKeyOf("key")

// world is a reconciler on fakes. Its passes are made by the test, one at a time.
type world struct {
	t          *testing.T
	reconciler *Reconciler
	clock      *clocktesting.FakeClock
	// locks is what the engine and the cache of Locks show.
	locks      *locktest.Backend
	engine     *faultyEngine
	cluster    client.WithWatch
	leadership *fakeLeadership
	recorder   *events.FakeRecorder
	records    audittest.Recorder

	mu sync.Mutex
	// pods says which Jobs have pods that have not ended.
	pods map[types.UID]bool
	// shown is what the cache of Jobs shows if it is behind.
	shown *batchv1.JobList
	// refuse is asked before a Job or its status is written, and afterLook called when the
	// cache has shown the Lock, unless it fails with looking.
	refuse    func(job client.Object, isStatus bool) error
	afterLook func()
	looking   error
	// reading is what reads of a Job fail with.
	reading error
	// losePatches has the answers to patches of Jobs get lost.
	losePatches bool
	// foreignPod is the name of the pod that is listed in place of those that their Job controls. Empty
	// means none.
	foreignPod string
	// stop ends the process of the operator.
	stop func()
	// starts are the names of the Jobs that were started, in order.
	starts []string
	// acquired counts the ends of requests for locks.
	acquired map[observe.Acquired]int
}

func (w *world) count(end observe.Acquired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acquired[end]++
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)),
		leadership: &fakeLeadership{isLeader: true}, recorder: events.NewFakeRecorder(1000), pods: map[types.UID]bool{},
		acquired: map[observe.Acquired]int{},
	}
	w.locks = locktest.New(locktest.WithClock(w.clock))
	w.engine = &faultyEngine{Backend: w.locks}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.cluster = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&batchv1.Job{}).Build()
	w.stop = func() {}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start begins a process of the operator, after the end of the one before.
func (w *world) start() {
	w.stop()
	ctx, cancel := context.WithCancel(context.Background())
	faulty := interceptor.NewClient(w.cluster, interceptor.Funcs{
		Get: w.get, List: w.list, Patch: w.patch,
		SubResourcePatch: func(ctx context.Context, _ client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := w.refused(ctx, object, true); err != nil {
				return err
			}
			return w.keepingForeign(ctx, object, func() error { return w.cluster.SubResource(name).Patch(ctx, object, patch, options...) })
		},
	})
	reconciler := &Reconciler{
		Client: faulty, LiveReader: faulty, Engine: w.engine, Holder: operator, Limits: rules.DefaultLimits(),
		Clock: w.clock, Leadership: w.leadership, Recorder: w.recorder, Audit: &w.records, Count: w.count,
		jobs: cachedJobs{w}, jobsOf: cachedJobs{w}.of, reports: newReportLimiter(w.clock), AnnotateAfter: reportAfter, working: ctx, states: map[client.ObjectKey]*lockState{},
		workqueue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	w.reconciler = reconciler
	w.stop = func() {
		cancel()
		if err := reconciler.awaitBackground(ctx); err != nil {
			w.t.Error(err)
		}
		reconciler.workqueue.ShutDown()
	}
}

// get shows the Lock as a cache would that is up to date.
func (w *world) get(ctx context.Context, cluster client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
	shown, ok := object.(*v1alpha1.Lock)
	if !ok {
		if w.reading != nil {
			return w.reading
		}
		return cluster.Get(ctx, name, object, options...)
	}
	if w.looking != nil {
		return w.looking
	}
	held := w.held() // in memory
	if w.afterLook != nil {
		w.afterLook()
	}
	if held == nil {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("locks").GroupResource(), name.Name)
	}
	held.DeepCopyInto(shown)
	return nil
}

// list shows the Lock, and the pods that have not ended.
func (w *world) list(ctx context.Context, cluster client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if locks, ok := list.(*v1alpha1.LockList); ok {
		if held := w.held(); held != nil { // in memory
			locks.Items = append(locks.Items, *held)
		}
		return nil
	}
	pods, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return cluster.List(ctx, list, options...)
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, isLive := range w.pods {
		if isLive && asked.Namespace == space && asked.LabelSelector.String() == batchv1.ControllerUidLabel+"="+string(uid) {
			pod := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: space, Name: "pod", OwnerReferences: []metav1.OwnerReference{{UID: uid, Controller: new(true)}},
			}}
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			if w.foreignPod != "" {
				pod.ObjectMeta = metav1.ObjectMeta{Name: w.foreignPod, UID: types.UID(w.foreignPod)}
			}
			pods.Items = append(pods.Items, pod)
		}
	}
	return nil
}

func (w *world) patch(ctx context.Context, cluster client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := w.refused(ctx, object, false); err != nil {
		return err
	}
	var before batchv1.Job
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(object), &before); err != nil {
		return err
	}
	if err := w.keepingForeign(ctx, object, func() error { return cluster.Patch(ctx, object, patch, options...) }); err != nil {
		return err
	}
	if after, ok := object.(*batchv1.Job); ok && jobs.IsSuspended(&before) && !jobs.IsSuspended(after) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.starts = append(w.starts, object.GetName())
		w.pods[object.GetUID()] = true
	}
	if w.losePatches {
		return errOutage
	}
	return nil
}

// keepingForeign fails the test if the write changes what is not the operator's.
func (w *world) keepingForeign(ctx context.Context, object client.Object, write func() error) error {
	var before, after batchv1.Job
	if err := w.cluster.Get(ctx, client.ObjectKeyFromObject(object), &before); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	if err := w.cluster.Get(ctx, client.ObjectKeyFromObject(object), &after); err != nil {
		return client.IgnoreNotFound(err) // Its last finalizer was removed.
	}
	if diff := cmp.Diff(foreign(&before), foreign(&after), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("the operator has changed what others set in the Job %s (-before +after):\n%s", object.GetName(), diff)
	}
	return nil
}

// foreign returns what the operator never changes of a Job.
func foreign(job *batchv1.Job) *batchv1.Job {
	job = job.DeepCopy()
	job.ResourceVersion, job.Spec.Suspend = "", nil
	job.Finalizers = slices.DeleteFunc(job.Finalizers, func(name string) bool { return name == v1alpha1.LockFinalizer })
	for _, name := range []string{v1alpha1.LockWaitingAnnotation, v1alpha1.LockStoppingAnnotation, v1alpha1.LockQueuedTimeAnnotation} {
		delete(job.Annotations, name)
	}
	delete(job.Spec.Template.Annotations, v1alpha1.FencingTokenAnnotation)
	job.Status = batchv1.JobStatus{CompletedIndexes: job.Status.CompletedIndexes, UncountedTerminatedPods: job.Status.UncountedTerminatedPods}
	return job
}

func (w *world) refused(ctx context.Context, object client.Object, isStatus bool) error {
	if err := ctx.Err(); err != nil || w.refuse == nil {
		return err
	}
	return w.refuse(object, isStatus)
}

type change func(*batchv1.Job)

func annotated(name, value string) change {
	return func(job *batchv1.Job) { job.Annotations[name] = value }
}

// running is the state of a Job that was started.
func running(job *batchv1.Job) {
	job.Spec.Suspend = new(false)
	metav1.SetMetaDataAnnotation(&job.Spec.Template.ObjectMeta, v1alpha1.FencingTokenAnnotation, "1")
}

// stopping is the state of a Job that was started and suspended.
func stopping(job *batchv1.Job) {
	running(job)
	job.Spec.Suspend = new(true)
	job.Status.Ready = new(int32(0))
}

func condition(kind batchv1.JobConditionType) change {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	}
}

// create creates a Job as admission leaves it. The names order the Jobs.
func (w *world) create(name string, changes ...change) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(w.clock.Now()),
			Labels:      map[string]string{v1alpha1.LockLabel: "true", "app": "billing"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "key", "example.com/ticket": "4711"},
			Finalizers:  []string{v1alpha1.LockFinalizer},
		},
		Spec: batchv1.JobSpec{Suspend: new(true), TTLSecondsAfterFinished: new(int32(60)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "billing"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "billing"}}},
		}},
		Status: batchv1.JobStatus{CompletedIndexes: "0-3", UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Failed: []types.UID{"pod"}}},
	}
	if len(name)%2 == 0 { // The token is then the only annotation of the others.
		job.Spec.Template.Annotations = map[string]string{"example.com/scrape": "true"}
	}
	for _, change := range changes {
		change(job)
	}
	status := job.Status.DeepCopy()
	if err := w.cluster.Create(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	job.Status = *status
	if err := w.cluster.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	return job
}

// write changes a Job as users and the Job controller do.
func (w *world) write(job *batchv1.Job, changes ...change) {
	w.t.Helper()
	current := w.read(job)
	for _, change := range changes {
		change(current)
	}
	status := current.Status.DeepCopy()
	if err := w.cluster.Update(w.t.Context(), current); err != nil {
		w.t.Fatal(err)
	}
	current.Status = *status
	if err := w.cluster.Status().Update(w.t.Context(), current); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(job *batchv1.Job) *batchv1.Job {
	w.t.Helper()
	var current batchv1.Job
	if err := w.cluster.Get(w.t.Context(), client.ObjectKeyFromObject(job), &current); err != nil {
		w.t.Fatal(err)
	}
	return &current
}

func (w *world) isRunning(job *batchv1.Job) bool {
	w.t.Helper()
	return jobs.PhaseOf(w.read(job)) == jobs.Running
}

// complete has the last pod of a Job end, as far as the Job controller knows.
func (w *world) complete(job *batchv1.Job, hasPods bool) {
	w.t.Helper()
	w.mu.Lock()
	w.pods[job.UID] = hasPods
	w.mu.Unlock()
	w.write(job, condition(batchv1.JobComplete))
}

// held returns the Lock, or nil.
func (w *world) held() *v1alpha1.Lock {
	held, err := w.locks.Get(context.Background(), space, key)
	if err != nil {
		return nil
	}
	return held
}

// holder returns the name of the Job that holds the lock, or "".
func (w *world) holder() string {
	if held := w.held(); held != nil && held.Spec.HolderRef != nil {
		return held.Spec.HolderRef.Name
	}
	return ""
}

// grant gives the lock to a Job as another process of the operator would have.
func (w *world) grant(job *batchv1.Job) *v1alpha1.Lock {
	w.t.Helper()
	granted, err := w.locks.Acquire(w.t.Context(), space, lock.Request{Acquisition: rules.Acquisition{
		Scope: v1alpha1.ScopeGlobal, Key: "key", TTL: jobs.DefaultTTL, Holder: operator, Owner: "from-" + job.Name,
		HolderRef: &v1alpha1.HolderReference{APIVersion: jobAPIVersion, Kind: jobKind, Name: job.Name, UID: job.UID},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return granted
}

// grantTo lets another holder have the lock.
func (w *world) grantTo(holder string) {
	w.t.Helper()
	if _, err := w.locks.Acquire(w.t.Context(), space, lock.Request{Acquisition: rules.Acquisition{
		Scope: v1alpha1.ScopeGlobal, Key: "key", TTL: time.Hour, Holder: holder, Owner: "another-owner",
	}}); err != nil {
		w.t.Fatal(err)
	}
}

var theLock = client.ObjectKey{Namespace: space, Name: key.ObjectName()}

// tryPass makes one pass.
func (w *world) tryPass() (ctrl.Result, error) {
	return w.reconciler.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: theLock})
}

// pass makes passes that succeed.
func (w *world) pass(times int) {
	w.t.Helper()
	for range times {
		if _, err := w.tryPass(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) wantError() {
	w.t.Helper()
	if _, err := w.tryPass(); err == nil {
		w.t.Error("the pass succeeds")
	}
}

// awaitContender waits until the contender's wait is over, and makes a pass.
func (w *world) awaitContender() {
	w.t.Helper()
	w.awaitItem()
	w.pass(1)
}

// awaitItem takes the next item out of the queue.
func (w *world) awaitItem() {
	w.t.Helper()
	w.await("item in the queue", func() bool { return w.reconciler.workqueue.Len() > 0 })
	request, _ := w.reconciler.workqueue.Get()
	w.reconciler.workqueue.Done(request)
}

func (w *world) awaitWaiters(number int) {
	w.t.Helper()
	w.await("waiters", func() bool { return w.locks.Waiting(space, key) == number })
}

// awaitAnnotations waits until no annotations are being written.
func (w *world) awaitAnnotations() {
	w.t.Helper()
	w.await("annotations", func() bool { return w.reconciler.state(theLock).annotating.Load() == 0 })
}

// patience bounds what a goroutine is waited for.
const patience = time.Minute

func (w *world) await(what string, isThere func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for !isThere() {
		if ctx.Err() != nil {
			w.t.Fatalf("no %s in time", what)
		}
		goruntime.Gosched()
	}
}

// told returns the events so far.
func (w *world) told() []string {
	var said []string
	for {
		select {
		case event := <-w.recorder.Events:
			said = append(said, event)
		default:
			slices.Sort(said)
			return said
		}
	}
}

// freeze has the cache of Jobs show what it shows now.
func (w *world) freeze() {
	w.t.Helper()
	var shown batchv1.JobList
	if err := (cachedJobs{w}).List(w.t.Context(), &shown); err != nil {
		w.t.Fatal(err)
	}
	w.shown = &shown
}

// acquireWhenCancelled is an engine's grant that comes when the wait is given up.
func (w *world) acquireWhenCancelled(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	<-ctx.Done()
	return w.locks.Acquire(context.WithoutCancel(ctx), namespace, request)
}

// finalize looks at whether the finalizer of a Job may go.
func (w *world) finalize(job *batchv1.Job) {
	w.t.Helper()
	if _, err := (finalizerReconciler{w.reconciler}).Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}); err != nil {
		w.t.Fatal(err)
	}
}

func itoa(number int64) string { return strconv.FormatInt(number, 10) }
