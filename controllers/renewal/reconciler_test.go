package renewal_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

var noon = time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)

// cluster has one lock.
type cluster struct {
	client.Client
	clock *clocktesting.FakeClock
	// renewals are the patches, and failure what they fail with.
	renewals []string
	failure  error
}

func (c *cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	text, err := patch.Data(object)
	if err != nil {
		return err
	}
	c.renewals = append(c.renewals, string(text))
	if c.failure != nil {
		return c.failure
	}
	return c.Client.Patch(ctx, object, patch, options...)
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
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
	c := &cluster{Client: objects, clock: clocktesting.NewFakeClock(noon)}
	recorder := events.NewFakeRecorder(10)
	return c, &renewal.Reconciler{
		Client: c, LiveReader: objects, Clock: c.clock, Leadership: leadership.Always(), Events: &lockevents.Reporter{Recorder: recorder},
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
	if wait := c.reconcile(t, r); wait <= 0 {
		t.Error("does not look again when the cache is behind")
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

func (c staleCache) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.lock.DeepCopyInto(object.(*v1alpha1.Lock)) //nolint:errcheck,forcetypeassert // it reads nothing else
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
	for failure, isRepeated := range map[error]bool{
		apierrors.NewConflict(locks, "declared", errors.New("changed")): false,
		apierrors.NewNotFound(locks, "declared"):                        false,
		apierrors.NewInternalError(errors.New("etcd is away")):          true,
		context.DeadlineExceeded:                                        true,
	} {
		c, r, _ := start(t, declared())
		c.clock.Step(30 * time.Minute)
		c.failure = failure
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(declared())})
		if (err != nil) != isRepeated {
			t.Errorf("after %v: %v", failure, err)
		}
	}
}

// A clock that no answer of the API server has corrected may be wrong in either direction.
func TestAStaleClockIsFreshenedByAReadOfTheLock(t *testing.T) {
	c, r, _ := start(t, declared())
	stale := c.lock(t)
	live := c.lock(t)
	live.Spec.RenewalPolicy = ""
	if err := c.Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(30 * time.Minute)
	r.Client, r.Clock = staleCache{Client: c, lock: stale}, servertime.New(c.clock)
	if servertime.IsFresh(r.Clock) {
		t.Fatal("the clock is fresh")
	}
	if wait := c.reconcile(t, r); wait != 0 || len(c.renewals) > 0 {
		t.Error("it judged what the cache shows")
	}
}
