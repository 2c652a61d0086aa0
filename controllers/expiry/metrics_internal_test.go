package expiry

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/exposition"
)

func TestLocksAreCountedByNamespaceAndState(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC))
	var kept []*v1alpha1.Lock
	reconciler := &Reconciler{Clock: now, ClockSkewAllowance: time.Second, Leadership: leadership.Always(), all: func() []*v1alpha1.Lock { return kept }}
	add := func(namespace, key string, ttl time.Duration) {
		t.Helper()
		kept = append(kept, rules.Grant(namespace, rules.Acquisition{Key: key, Owner: "o", Holder: "alice", TTL: ttl}, rules.DefaultLimits(), now.Now()))
	}
	want := func(lag, series string) {
		t.Helper()
		text := exposition.Of(&metric.ReaperLag, metric.ReaperLag.Name+" "+lag+"\n")
		if series != "" {
			text += exposition.Of(&metric.Locks, series)
		}
		if err := testutil.CollectAndCompare(reconciler, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
	}
	want("0", "")
	add("a", "brief", time.Second)
	add("a", "long", time.Minute)
	add("b", "long", time.Minute)
	want("0", `lock_operator_locks{namespace="a",state="held"} 2
lock_operator_locks{namespace="b",state="held"} 1
`)
	now.Step(1500 * time.Millisecond) // Until the allowance is over, nothing is late.
	expired := `lock_operator_locks{namespace="a",state="expired"} 1
lock_operator_locks{namespace="a",state="held"} 1
lock_operator_locks{namespace="b",state="held"} 1
`
	want("0", expired)
	now.Step(10 * time.Second)
	want("9.5", expired)
	kept = nil
	want("0", "")
	reconciler.Leadership = &leadership.Election{}
	if count := testutil.CollectAndCount(reconciler); count != 0 {
		t.Errorf("%d series without the leadership", count)
	}
}
