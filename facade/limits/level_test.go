package limits_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
)

func TestALevelIsLeftBelowFourFifths(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	var level limits.Level
	for _, step := range []struct {
		count int
		want  time.Duration
	}{{9, 0}, {10, 1}, {9, time.Second}, {12, 2 * time.Second}, {8, 3 * time.Second}, {7, 0}, {9, 0}, {10, 1}} {
		level.Update(step.count, 10, clock)
		if got := level.For(clock.Now()); got != step.want {
			t.Errorf("at %d: for %s, want %s", step.count, got, step.want)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
}
