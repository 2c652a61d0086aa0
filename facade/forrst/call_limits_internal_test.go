package forrst

import "testing"

// Callers come and go, and must not be remembered for ever.
func TestCallersWithoutCallsAreForgotten(t *testing.T) {
	var limits CallLimits
	limits.setDefaults()
	limiter := newCallLimiter(limits)
	first, err := limiter.admit(caller{name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := limiter.admit(caller{name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.beginWait(); err != nil {
		t.Fatal(err)
	}
	first.leave()
	if len(limiter.callers) != 1 {
		t.Error("a caller that waits was forgotten")
	}
	second.endWait()
	second.leave()
	if len(limiter.callers) != 0 || limiter.occupancy() != (occupancy{}) {
		t.Errorf("%d callers are left, %+v", len(limiter.callers), limiter.occupancy())
	}
}
