package engine

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// A holder counts its ttl from the time when it sent its renewal.
func TestARenewalFromBeforeAnAttemptDoesNotServeIt(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	renewed := func(after time.Duration) *v1alpha1.Lock {
		acquired, at, expires := v1alpha1.NewTimestamp(noon), v1alpha1.NewTimestamp(noon.Add(after)), v1alpha1.NewTimestamp(noon.Add(time.Hour))
		return &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Owner: "a", AcquireTime: &acquired, RenewTime: &at, ExpireTime: &expires}}
	}
	for title, test := range map[string]struct {
		began time.Duration
		want  bool
	}{
		"renewed before": {4 * time.Second, false},
		"renewed since":  {2 * time.Second, true},
	} {
		t.Run(title, func(t *testing.T) {
			attempt := renewalAttempt{
				engine: &Engine{clock: clocktesting.NewFakeClock(noon.Add(6 * time.Second))}, proof: narrowing{given: rules.Proof{Owner: "a"}},
				began: servertime.Reading{Time: noon.Add(test.began)}, read: renewed(time.Second),
			}
			if got := attempt.isRenewedSince(renewed(3*time.Second), renewed(5*time.Second)); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
