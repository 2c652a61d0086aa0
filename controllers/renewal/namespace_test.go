package renewal_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestAnAdministratorWithdrawsTheRenewals(t *testing.T) {
	for _, withdrawn := range []string{"", "1h10m"} {
		c, r, recorder := start(t, declared())
		c.allow(t, withdrawn)
		c.clock.Step(30 * time.Minute)
		if wait := c.reconcile(t, r); len(c.renewals) > 0 || wait != 20*time.Minute || len(recorder.Events) != 1 {
			t.Errorf("with %q: %d renewals, %d Events, looks again after %s", withdrawn, len(c.renewals), len(recorder.Events), wait)
		}
		c.allow(t, "10h")
		c.reconcile(t, r)
		if len(c.renewals) != 1 {
			t.Error("it is not renewed where it is allowed again")
		}
	}
}

// A cache that is behind does not know a namespace or its annotation yet.
func TestTheRenewalsAreNotEndedByWhatTheCacheShowsOfTheNamespace(t *testing.T) {
	c, r, recorder := start(t, declared())
	stale := *c
	c.Client = withoutNamespaces{c.Client}
	c.clock.Step(30 * time.Minute)
	r.LiveReader = stale.Client
	c.reconcile(t, r)
	if len(c.renewals) != 1 || len(recorder.Events) > 0 {
		t.Errorf("%d renewals, %d Events", len(c.renewals), len(recorder.Events))
	}
}

func TestAReadThatFailsDoesNotWithdrawTheRenewals(t *testing.T) {
	c, r, recorder := start(t, declared())
	c.Client = withoutNamespaces{c.Client}
	c.clock.Step(30 * time.Minute)
	r.LiveReader = awayFromNamespaces{r.LiveReader}
	if wait := c.reconcile(t, r); wait <= 0 || wait > 10*time.Second || len(recorder.Events) > 0 {
		t.Errorf("%d Events, looks again after %s", len(recorder.Events), wait)
	}
}

// awayFromNamespaces reads locks alone.
type awayFromNamespaces struct{ client.Reader }

func (r awayFromNamespaces) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, isLock := object.(*v1alpha1.Lock); !isLock {
		return awayReader{}.Get(ctx, key, object)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

type withoutNamespaces struct{ client.Client }

func (c withoutNamespaces) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, isLock := object.(*v1alpha1.Lock); !isLock {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	return c.Client.Get(ctx, key, object, options...)
}

func TestTheClusterBoundsWhatANamespaceAllows(t *testing.T) {
	c, r, _ := start(t, declared())
	r.MaxOperatorRenewal = 0
	c.clock.Step(30 * time.Minute)
	c.reconcile(t, r)
	if len(c.renewals) > 0 {
		t.Error("it was renewed")
	}
}

// An earlier webhook admits these fields as they are.
func TestABoundThatNoWebhookHasStampedIsNotTrusted(t *testing.T) {
	forged := declared()
	end := v1alpha1.NewTimestamp(noon.Add(9999 * time.Hour))
	forged.Spec.RenewalEndTime = &end
	c, r, _ := start(t, forged)
	c.allow(t, "90m")
	for range 4 {
		c.clock.Step(15 * time.Minute)
		c.reconcile(t, r)
	}
	if got := c.lock(t).Spec.ExpireTime; got.After(noon.Add(90 * time.Minute)) {
		t.Errorf("renewed until %s", got)
	}
	missing := declared()
	missing.Spec.RenewalEndTime = nil
	c, r, _ = start(t, missing)
	c.clock.Step(30 * time.Minute)
	c.reconcile(t, r)
	if got := c.lock(t).Spec; got.RenewalEndTime == nil || !got.RenewalEndTime.Time.Equal(noon.Add(10*time.Hour)) || len(c.renewals) != 1 {
		t.Errorf("the renewals end at %v", got.RenewalEndTime)
	}
}

func TestTheEndOfTheRenewalsIsToldOnce(t *testing.T) {
	c, r, recorder := start(t, declared())
	c.allow(t, "0s")
	for range 5 {
		c.reconcile(t, r) // As after each change of the lock by others.
		c.clock.Step(time.Minute)
	}
	if len(recorder.Events) != 1 {
		t.Errorf("%d Events", len(recorder.Events))
	}
}

// passing is a clock on which time passes at each look.
type passing struct{ *clocktesting.FakeClock }

func (c passing) Now() time.Time {
	c.Step(time.Millisecond)
	return c.FakeClock.Now()
}

func TestARenewalThatIsHeldUpDoesNotReachBeyondItsBound(t *testing.T) {
	renewed := declared()
	renew, expire := v1alpha1.NewTimestamp(noon.Add(90*time.Minute)), v1alpha1.NewTimestamp(noon.Add(150*time.Minute))
	renewed.Spec.RenewTime, renewed.Spec.ExpireTime = &renew, &expire
	c, r, _ := start(t, renewed)
	r.Clock = passing{c.clock}
	c.clock.Step(2*time.Hour - time.Millisecond) // The last moment at which it may be renewed is the one at which it is judged.
	c.reconcile(t, r)
	if got := c.lock(t).Spec; len(c.renewals) != 1 || got.ExpireTime.After(got.RenewalEndTime.Time) {
		t.Errorf("%d renewals, until %s, beyond %s", len(c.renewals), got.ExpireTime, got.RenewalEndTime)
	}
}
