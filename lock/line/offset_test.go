package line

import (
	"testing"
	"time"
)

// The clock of the other replica may run faster or slower. Callers of several replicas must not drift apart.
func TestOffsetsFollowClocksThatRunFaster(t *testing.T) {
	for name, drift := range map[string]float64{"faster": 1 + 1e-4, "slower": 1 - 1e-4} {
		t.Run(name, func(t *testing.T) {
			began := time.Unix(1000, 0)
			var o offset
			for passed := time.Duration(0); passed < 24*time.Hour; passed += pingPeriod {
				late := time.Millisecond
				if passed%(10*time.Second) < time.Second {
					late = 50 * time.Microsecond
				}
				shown := time.Duration(float64(passed) * drift)
				o.note(began.Add(passed+late), shown)
				if passed < time.Minute {
					continue
				}
				if off := o.at(shown).Sub(began.Add(passed)); off.Abs() > 10*time.Millisecond {
					t.Fatalf("off by %v after %v", off, passed)
				}
			}
		})
	}
}

func TestOffsetsAreOfTheQuickestMessage(t *testing.T) {
	began := time.Unix(1000, 0)
	var o offset
	for _, late := range []time.Duration{time.Second, 3 * time.Millisecond, time.Minute} {
		o.note(began.Add(late), 0)
	}
	if off := o.at(time.Second).Sub(began.Add(time.Second)); off != 3*time.Millisecond {
		t.Errorf("off by %v", off)
	}
}
