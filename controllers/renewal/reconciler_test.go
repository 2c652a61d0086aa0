package renewal_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
)

var noon = time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)

// cluster has one lock, in a namespace that allows 10 hours.
type cluster struct {
	client.Client
	clock *clocktesting.FakeClock
	// renewals are the patches, failure is what they fail with, and before runs before they are stored.
	renewals []string
	failure  error
	before   func(ctx context.Context)
	// isLost says that failure is the answer to patches that are stored.
	isLost bool
}

func (c *cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	text, err := patch.Data(object)
	if err != nil {
		return err
	}
	c.renewals = append(c.renewals, string(text))
	if c.before != nil {
		c.before(ctx)
	}
	if c.failure != nil && !c.isLost {
		return c.failure
	}
	return errors.Join(c.Client.Patch(ctx, object, patch, options...), c.failure)
}

// allow sets the annotation of the namespace.
func (c *cluster) allow(t *testing.T, longest string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: longest}}}
	if err := c.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}

func declared() *v1alpha1.Lock {
	granted := rules.Grant("default", rules.Acquisition{Key: "declared", Owner: "repository", Holder: "flux", TTL: time.Hour}, rules.DefaultLimits(), noon)
	end := v1alpha1.NewTimestamp(noon.Add(3 * time.Hour))
	granted.Spec.RenewalPolicy, granted.Spec.RenewalEndTime = v1alpha1.RenewalByOperator, &end
	return granted
}

// start returns a cluster with the lock, its reconciler, and the Events that it makes.
func start(t *testing.T, stored *v1alpha1.Lock) (*cluster, *renewal.Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: "10h"}}}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored, namespace).Build()
	c := &cluster{Client: objects, clock: clocktesting.NewFakeClock(noon)}
	recorder := events.NewFakeRecorder(10)
	return c, &renewal.Reconciler{
		Client: c, LiveReader: objects, Clock: c.clock, Leadership: leadership.Always(), Events: &lockevents.Reporter{Recorder: recorder},
		MaxOperatorRenewal: 100 * time.Hour,
	}, recorder
}

func (c *cluster) reconcile(t *testing.T, r *renewal.Reconciler) time.Duration {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(declared())})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func (c *cluster) lock(t *testing.T) *v1alpha1.Lock {
	t.Helper()
	var stored v1alpha1.Lock
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(declared()), &stored); err != nil {
		t.Fatal(err)
	}
	return &stored
}

func TestALockIsRenewedAtAThirdOfItsTTLAndNotBeyondItsBound(t *testing.T) {
	c, r, recorder := start(t, declared())
	before := c.lock(t)
	writes := 0
	for c.clock.Now().Before(noon.Add(4 * time.Hour)) {
		wait := c.reconcile(t, r)
		if len(c.renewals) == writes+1 {
			writes++
			if got := c.lock(t).Spec.ExpireTime; !got.Time.Equal(c.clock.Now().Add(time.Hour)) {
				t.Fatalf("renewed until %s", got)
			}
			if wait != 20*time.Minute && writes < 6 {
				t.Fatalf("looks again after %s", wait)
			}
		}
		if wait == 0 {
			break
		}
		c.clock.Step(wait)
	}
	c.reconcile(t, r) // As the watch of the last renewal makes it.
	// The last that may be made is two hours after the grant.
	if after := c.lock(t); writes != 6 || !after.Spec.ExpireTime.Time.Equal(noon.Add(3*time.Hour)) || !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
		t.Errorf("%d renewals, until %s", writes, after.Spec.ExpireTime)
	}
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event, lockevents.ReasonRenewalEnded) || strings.Contains(event, "repository") {
			t.Error(event)
		}
	default:
		t.Error("no Event tells that the renewals are over")
	}
}

func TestARenewalIsOfTheVersionThatWasJudged(t *testing.T) {
	c, r, _ := start(t, declared())
	c.clock.Step(30 * time.Minute)
	stale := c.lock(t)
	changed := stale.DeepCopy()
	changed.Spec.RenewalPolicy, changed.Spec.RenewalEndTime = "", nil
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	r.Client = staleCache{Client: c, lock: stale}
	if wait := c.reconcile(t, r); wait != 0 {
		t.Errorf("looks again after %s", wait)
	}
	if got := c.lock(t); len(c.renewals) != 1 || !got.Spec.RenewTime.Equal(stale.Spec.RenewTime) {
		t.Errorf("renewed a lock whose holder has ended the renewals: %+v", got.Spec)
	}
}

func TestWhatIsNotToBeRenewedIsNot(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Lock){
		"a lock that its holder renews": func(l *v1alpha1.Lock) { l.Spec.RenewalPolicy = "" },
		"a lock that has expired":       func(l *v1alpha1.Lock) { l.Spec.ExpireTime = l.Spec.AcquireTime },
		"a lock whose object has ended": func(l *v1alpha1.Lock) { l.Spec.HolderEndTime = l.Spec.AcquireTime },
		"a lock that is being deleted": func(l *v1alpha1.Lock) {
			l.DeletionTimestamp, l.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/f"}
		},
		"a lock that was renewed just now": func(l *v1alpha1.Lock) {
			at := v1alpha1.NewTimestamp(noon.Add(30 * time.Minute))
			l.Spec.RenewTime = &at
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := declared()
			change(stored)
			c, r, _ := start(t, stored)
			c.clock.Step(30 * time.Minute)
			c.reconcile(t, r)
			if len(c.renewals) > 0 {
				t.Error("it was renewed")
			}
		})
	}
	t.Run("by a replica that does not lead", func(t *testing.T) {
		c, r, _ := start(t, declared())
		r.Leadership = &leadership.Election{}
		c.clock.Step(30 * time.Minute)
		if wait := c.reconcile(t, r); wait != 0 || len(c.renewals) > 0 {
			t.Error("it was renewed")
		}
	})
	t.Run("a lock that is gone", func(t *testing.T) {
		c, r, _ := start(t, declared())
		if err := c.Delete(t.Context(), declared()); err != nil {
			t.Fatal(err)
		}
		c.clock.Step(30 * time.Minute)
		if wait := c.reconcile(t, r); wait != 0 || len(c.renewals) > 0 {
			t.Error("it was renewed")
		}
	})
}

// staleCache shows a former state of the lock.
type staleCache struct {
	client.Client
	lock *v1alpha1.Lock
}

func (c staleCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	shown, isLock := object.(*v1alpha1.Lock)
	if !isLock {
		return c.Client.Get(ctx, key, object, options...)
	}
	c.lock.DeepCopyInto(shown)
	return nil
}

func TestARenewalWritesNothingThatAManifestSays(t *testing.T) {
	c, r, _ := start(t, declared())
	before := c.lock(t)
	c.clock.Step(30 * time.Minute)
	c.reconcile(t, r)
	if len(c.renewals) != 1 {
		t.Fatalf("%d writes", len(c.renewals))
	}
	var patch struct {
		Metadata map[string]string `json:"metadata"`
		Spec     map[string]any    `json:"spec"`
	}
	if err := json.Unmarshal([]byte(c.renewals[0]), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata["resourceVersion"] != before.ResourceVersion || len(patch.Metadata) != 1 {
		t.Errorf("the condition is %v", patch.Metadata)
	}
	token, err := before.FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	if stamps := slices.Sorted(maps.Keys(patch.Spec)); !slices.Equal(stamps, []string{"expireTime", "fencingToken", "renewTime"}) || patch.Spec["fencingToken"] != float64(token) {
		t.Errorf("it writes %v", patch.Spec)
	}
}

func TestARenewalThatFailsIsRepeatedAndALostLockIsNot(t *testing.T) {
	locks := v1alpha1.Resource("locks")
	for name, test := range map[string]struct {
		failure error
		isGone  bool
		want    time.Duration
	}{
		"a conflict, again and again": {failure: apierrors.NewConflict(locks, "declared", errors.New("changed")), want: time.Second},
		"a lock that is gone":         {failure: apierrors.NewNotFound(locks, "declared"), isGone: true},
		"an error of the API server":  {failure: apierrors.NewInternalError(errors.New("etcd is away")), want: 10 * time.Second},
		"no answer":                   {failure: context.DeadlineExceeded, want: 10 * time.Second},
		"a refusal":                   {failure: apierrors.NewForbidden(locks, "declared", errors.New("exceeded quota: x")), want: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c, r, _ := start(t, declared())
			c.clock.Step(30 * time.Minute)
			c.failure = test.failure
			if test.isGone {
				c.before = func(ctx context.Context) {
					if err := c.Delete(ctx, declared()); err != nil {
						t.Error(err)
					}
				}
			}
			if wait := c.reconcile(t, r); wait != test.want {
				t.Errorf("looks again after %s", wait)
			}
		})
	}
}

// A lock that was given up for a read that fails would expire.
func TestAReadThatFailsEndsNoRenewal(t *testing.T) {
	c, r, _ := start(t, declared())
	c.clock.Step(30 * time.Minute)
	c.failure = apierrors.NewConflict(v1alpha1.Resource("locks"), "declared", errors.New("changed"))
	r.LiveReader = awayReader{c}
	if wait := c.reconcile(t, r); wait <= 0 {
		t.Errorf("looks again after %s", wait)
	}
}

// awayReader does not reach the API server.
type awayReader struct{ client.Reader }

func (awayReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server is away")
}

func TestARenewalIsRepeatedMoreOftenTowardsTheExpiry(t *testing.T) {
	c, r, _ := start(t, declared())
	c.failure = context.DeadlineExceeded
	c.clock.Step(time.Hour - 40*time.Second)
	if wait := c.reconcile(t, r); wait != 5*time.Second {
		t.Errorf("with 40 s left after %s", wait)
	}
	c.clock.Step(36 * time.Second)
	if wait := c.reconcile(t, r); wait != time.Second {
		t.Errorf("with 4 s left after %s", wait)
	}
}

// A watch may have lost every renewal for longer than the ttl.
func TestAFrozenCacheDoesNotLetALockExpire(t *testing.T) {
	c, r, _ := start(t, declared())
	r.Client = staleCache{Client: c, lock: c.lock(t)}
	for c.clock.Now().Before(noon.Add(150 * time.Minute)) {
		wait := c.reconcile(t, r)
		if wait <= 0 {
			t.Fatalf("gave the lock up at %s", c.clock.Now())
		}
		c.clock.Step(wait)
		if lock := c.lock(t); rules.Expired(lock, c.clock.Now()) {
			t.Fatalf("it expired at %s, it is %s", lock.Spec.ExpireTime, c.clock.Now())
		}
	}
	if len(c.renewals) > 20 {
		t.Errorf("%d writes for 7 renewals", len(c.renewals))
	}
}

// What the API server holds up, or a frozen process sends late, must not prolong a lock that others have seen free.
func TestARenewalIsNotSentOrAwaitedUntilTheExpiry(t *testing.T) {
	c, r, _ := start(t, declared())
	c.clock.Step(time.Hour - 5*time.Second)
	sent := time.Now()
	c.before = func(ctx context.Context) {
		if deadline, isSet := ctx.Deadline(); !isSet || deadline.Sub(sent) > 4*time.Second {
			t.Errorf("it may be sent until %s, %s from now", deadline, deadline.Sub(sent))
		}
	}
	c.reconcile(t, r)
	if len(c.renewals) != 1 {
		t.Fatalf("%d writes", len(c.renewals))
	}
	c, r, _ = start(t, declared())
	c.clock.Step(time.Hour - rules.OperatorRenewalMargin)
	c.reconcile(t, r)
	if len(c.renewals) > 0 {
		t.Error("it was renewed just before it expired")
	}
}

// An API server may go on with a request that its client has given up. It is stored, and told.
func TestARenewalThatComesTooLateIsTold(t *testing.T) {
	c, r, _ := start(t, declared())
	var records recorded
	r.Audit = &records
	c.clock.Step(50 * time.Minute)
	c.before = func(context.Context) {
		c.clock.Step(20 * time.Minute)
		c.before = nil
	}
	var lines []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(declared())}); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "after the expiry of the lock") || len(records) == 0 || !records[0].IsLate {
		t.Errorf("logged %q, records %+v", lines, records)
	}
}

// A policy may quote the lock that it refuses, and it refuses the renewals of many.
func TestARefusalIsLoggedOnceAndWithoutTheOwner(t *testing.T) {
	c, r, _ := start(t, declared())
	c.clock.Step(30 * time.Minute)
	c.failure = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "x.example.com" denied the request: not {"owner":"repository"}`,
	}}
	var lines []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(prefix, line string) { lines = append(lines, prefix+line) }, funcr.Options{}))
	for range 3 {
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(declared())}); err != nil {
			t.Fatalf("controller-runtime logs each time %v", err)
		}
		c.clock.Step(10 * time.Second)
	}
	if len(c.renewals) != 3 || len(lines) != 1 || !strings.Contains(lines[0], "x.example.com") || strings.Contains(lines[0], "repository") {
		t.Errorf("%d writes, logged %q", len(c.renewals), lines)
	}
}

// The record of a renewal must not be missing because its answer was.
func TestARenewalWhoseAnswerIsLostIsRecordedOnce(t *testing.T) {
	for name, failure := range map[string]error{
		"no answer": io.ErrUnexpectedEOF,
		"a conflict, as a proxy repeats the request": apierrors.NewConflict(v1alpha1.Resource("locks"), "declared", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			c, r, _ := start(t, declared())
			var records recorded
			r.Audit = &records
			c.failure, c.isLost = failure, true
			c.clock.Step(30 * time.Minute)
			wait := c.reconcile(t, r)
			c.clock.Step(time.Minute)
			c.reconcile(t, r)
			if len(records) != 1 || records[0].Event != audit.Renewed || len(c.renewals) != 1 || wait != 20*time.Minute {
				t.Errorf("%d writes, records %+v, looks again after %s", len(c.renewals), records, wait)
			}
		})
	}
}

type recorded []audit.Record

func (r *recorded) Record(record audit.Record) { *r = append(*r, record) }

func (r *recorded) Lost(audit.Record) {}
