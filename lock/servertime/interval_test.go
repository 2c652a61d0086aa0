package servertime

import (
	"testing"
	"time"
)

func TestOffsetOfAnObservation(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		observation observation
		want        interval
	}{
		"clocks that agree":               {observation{sent: 2500 * ms, received: 2510 * ms, date: 2000 * ms}, interval{-510 * ms, 500 * ms}},
		"answered at once":                {observation{sent: 2000 * ms, received: 2000 * ms, date: 2000 * ms}, interval{0, 1000 * ms}},
		"answered across a second":        {observation{sent: 1990 * ms, received: 2010 * ms, date: 2000 * ms}, interval{-10 * ms, 1010 * ms}},
		"a local clock an hour ahead":     {observation{sent: time.Hour, received: time.Hour, date: 0}, interval{-time.Hour, -time.Hour + time.Second}},
		"a local clock an hour behind":    {observation{sent: -time.Hour, received: -time.Hour, date: 0}, interval{time.Hour, time.Hour + time.Second}},
		"a response that took an hour":    {observation{sent: 0, received: time.Hour, date: 0}, interval{-time.Hour, time.Second}},
		"a step forward during a request": {observation{sent: 0, received: time.Hour + ms, date: 0}, interval{-time.Hour - ms, time.Second}},
	} {
		if got := test.observation.offset(); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestInterval(t *testing.T) {
	for name, test := range map[string]struct {
		a, b, want interval
		isEmpty    bool
	}{
		"overlapping": {a: interval{0, 10}, b: interval{5, 15}, want: interval{5, 10}},
		"contained":   {a: interval{0, 10}, b: interval{2, 3}, want: interval{2, 3}},
		"touching":    {a: interval{0, 10}, b: interval{10, 15}, want: interval{10, 10}},
		"apart":       {a: interval{0, 10}, b: interval{11, 15}, want: interval{11, 10}, isEmpty: true},
	} {
		for _, got := range []interval{test.a.intersect(test.b), test.b.intersect(test.a)} {
			if got != test.want || got.isEmpty() != test.isEmpty {
				t.Errorf("%s: got %v (empty: %t), want %v (%t)", name, got, got.isEmpty(), test.want, test.isEmpty)
			}
		}
	}
	if got := (interval{-1, 4}).widen(2); got != (interval{-3, 6}) {
		t.Errorf("widened: got %v", got)
	}
	for to, want := range map[time.Duration]time.Duration{-20: -3, -3: -3, 0: 0, 6: 6, 20: 6} {
		if got := (interval{-3, 6}).nearest(to); got != want {
			t.Errorf("nearest to %d: got %d, want %d", to, got, want)
		}
	}
}
