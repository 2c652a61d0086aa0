package line

import (
	"maps"
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
		look := func() (bool, time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			return isLost, 0
		}
		m := newMembers("self", clock.RealClock{}, logr.Discard(), look, func(now lag) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, now.isLost)
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

func TestSeemBehind(t *testing.T) {
	for name, test := range map[string]struct {
		lags   map[string]lag
		before map[string]bool
		want   map[string]bool
	}{
		"all keep up":                 {lags: map[string]lag{"a": {silence: 700 * time.Millisecond}, "b": {silence: time.Millisecond}}},
		"no operator beats":           {lags: map[string]lag{"a": {silence: time.Minute}, "b": {silence: time.Minute + maxLag}}},
		"one watch is silent":         {lags: map[string]lag{"a": {silence: time.Millisecond}, "b": {silence: 2 * maxLag}}, want: map[string]bool{"b": true}},
		"it hears again, not yet new": {lags: map[string]lag{"a": {silence: time.Millisecond}, "b": {silence: maxLag * 3 / 4}}, before: map[string]bool{"b": true}, want: map[string]bool{"b": true}},
		"it hears again":              {lags: map[string]lag{"a": {silence: time.Millisecond}, "b": {silence: maxLag / 4}}, before: map[string]bool{"b": true}},
		"one has just begun":          {lags: map[string]lag{"a": {}, "b": {silence: time.Minute}}},
		"one has lost touch":          {lags: map[string]lag{"a": {isLost: true}, "b": {silence: time.Minute}}, want: map[string]bool{"a": true}},
		"a single one that is silent": {lags: map[string]lag{"a": {silence: time.Hour}}},
		"all have lost touch":         {lags: map[string]lag{"a": {isLost: true}, "b": {isLost: true}}, want: map[string]bool{"a": true, "b": true}},
	} {
		if behind := seemBehind(test.lags, test.before); !maps.Equal(behind, test.want) {
			t.Errorf("%s: %v seem behind, want %v", name, behind, test.want)
		}
	}
}

// A replica is behind once it has seemed so for longer than what it tells is old, or at once if it has lost touch.
func TestAreBehind(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		of     lag
		before bool
		since  time.Duration
		want   bool
	}{
		"it seems so since a moment": {since: behindAfter - 1},
		"it seems so for long":       {since: behindAfter, want: true},
		"it has been, and seems so":  {before: true, want: true},
		"it has lost touch":          {of: lag{isLost: true}, want: true},
	} {
		behind := areBehind(map[string]lag{"a": test.of}, map[string]bool{"a": test.before}, map[string]time.Time{"a": now.Add(-test.since)}, now)
		if behind["a"] != test.want {
			t.Errorf("%s: %v are behind", name, behind)
		}
	}
	if behind := areBehind(map[string]lag{"a": {}}, map[string]bool{"a": true}, nil, now); len(behind) > 0 {
		t.Errorf("%v are behind, though they do not seem so any more", behind)
	}
}
