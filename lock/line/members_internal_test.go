package line

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// A replica that keeps up now and then is not home now and then.
func TestAReplicaThatHasLostTouchIsHomeAgainWhenItIsSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		isLost, told := true, []bool{}
		look := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return isLost
		}
		m := newMembers("self", clock.RealClock{}, logr.Discard(), look, func(isLost bool) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, isLost)
		})
		go func() { _ = m.run(t.Context()) }()
		pass := func(lost bool, length time.Duration, want bool) {
			t.Helper()
			mu.Lock()
			isLost = lost
			mu.Unlock()
			<-time.After(length)
			mu.Lock()
			defer mu.Unlock()
			if len(told) == 0 || told[len(told)-1] != want {
				t.Fatalf("the others were told %v", told)
			}
		}
		pass(true, 2*pingPeriod, true)
		pass(false, 2*pingPeriod, false) // It has begun.
		pass(true, 2*pingPeriod, true)
		for range 4 {
			pass(false, steadyFor/2, true)
			pass(true, 2*pingPeriod, true)
		}
		pass(false, steadyFor+2*pingPeriod, false)
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 4 {
			t.Errorf("the others were told %v", told)
		}
	})
}
