package renewal_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

func TestAttemptsAreCountedByResultAndTheTimeLeftIsShown(t *testing.T) {
	c, r, _ := start(t, declared())
	want := func(title, renewed, changed, failed, left string) {
		t.Helper()
		series := metric.OperatorRenewals.Name + `{outcome="changed"} ` + changed + "\n" +
			metric.OperatorRenewals.Name + `{outcome="failed"} ` + failed + "\n" +
			metric.OperatorRenewals.Name + `{outcome="renewed"} ` + renewed + "\n"
		text := exposition.Of(&metric.OperatorRenewals, series)
		if left != "" {
			text += exposition.Of(&metric.OperatorRenewalLeastLeft, metric.OperatorRenewalLeastLeft.Name+" "+left+"\n")
		}
		if err := testutil.CollectAndCompare(r, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", title, err)
		}
	}
	want("before all looks", "0", "0", "0", "1")
	c.reconcile(t, r)
	c.clock.Step(15 * time.Minute)
	want("before it is due", "0", "0", "0", "0.75")

	c.clock.Step(15 * time.Minute)
	c.failure = errors.New("refused")
	c.reconcile(t, r)
	want("after a failure", "0", "0", "1", "0.5")
	c.failure = nil
	c.reconcile(t, r)
	want("after a renewal", "1", "0", "1", "1")

	c.clock.Step(30 * time.Minute)
	stale := c.lock(t)
	changed := stale.DeepCopy()
	changed.Spec.RenewalPolicy, changed.Spec.RenewalEndTime = "", nil
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	r.Client = staleCache{Client: c, lock: stale}
	c.reconcile(t, r)
	want("after the holder has ended the renewals", "1", "1", "1", "1")
}

func TestTheTimeLeftIsNotOfLocksThatAreOverGoneOrOfAnotherLeader(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *cluster, *renewal.Reconciler){
		"a lock at its renewalEndTime": func(_ *testing.T, c *cluster, _ *renewal.Reconciler) {
			c.clock.SetTime(noon.Add(50 * time.Minute))
		},
		"a lock whose namespace allows no more": func(t *testing.T, c *cluster, _ *renewal.Reconciler) {
			t.Helper()
			c.allow(t, "1h")
		},
		"a lock that is gone": func(t *testing.T, c *cluster, _ *renewal.Reconciler) {
			t.Helper()
			if err := c.Delete(t.Context(), c.lock(t)); err != nil {
				t.Fatal(err)
			}
		},
		"a replica that leads no more": func(_ *testing.T, _ *cluster, r *renewal.Reconciler) { r.Leadership = &leadership.Election{} },
	} {
		t.Run(name, func(t *testing.T) {
			stored := declared()
			if strings.Contains(name, "renewalEndTime") {
				stored.Spec.RenewalEndTime.Time = noon.Add(100 * time.Minute)
			}
			c, r, _ := start(t, stored)
			c.reconcile(t, r)
			c.clock.Step(15 * time.Minute)
			end(t, c, r)
			c.reconcile(t, r)
			r.Leadership = leadership.Always()
			text := exposition.Of(&metric.OperatorRenewalLeastLeft, metric.OperatorRenewalLeastLeft.Name+" 1\n")
			if err := testutil.CollectAndCompare(r, strings.NewReader(text), metric.OperatorRenewalLeastLeft.Name); err != nil {
				t.Error(err)
			}
		})
	}
}
