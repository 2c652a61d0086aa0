package robustness_test

import (
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestHeld shows for small histories which beliefs of programs are violations.
func TestHeld(t *testing.T) {
	start := time.Now().Round(0)
	granted := func(owner string, token int64, from, to, ttl time.Duration) *grant {
		made := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{RenewTime: new(v1alpha1.NewTimestamp(start.Add(from))), ExpireTime: new(v1alpha1.NewTimestamp(start.Add(from + ttl)))}}
		return &grant{key: "lock:held-0", owner: owner, token: token, from: from, to: to, made: made, last: made}
	}
	believed := func(owner string, token int64, from, to time.Duration) belief {
		return belief{key: "held-0", owner: owner, token: token, span: span{from, to}}
	}
	fenced := func(taken belief, fence int64) belief {
		taken.setToken = fence
		return taken
	}
	renewedAt := func(made *grant, at time.Duration) *grant {
		made.last.Spec.RenewTime = new(v1alpha1.NewTimestamp(start.Add(at)))
		return made
	}
	told := func(taken belief, at time.Duration) belief {
		taken.told = at
		return taken
	}
	for name, test := range map[string]struct {
		grants          []*grant
		beliefs         []belief
		isFound, isLate bool
	}{
		"one after the other": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second), granted("b", 2, 2*second, never, 9*second)},
			[]belief{believed("a", 1, 0, 2*second), believed("b", 2, 2*second, 3*second)}, false, false,
		},
		"two at once by an instant": {
			[]*grant{granted("a", 1, 0, 3*second, 9*second), granted("b", 2, 2*second, never, 9*second)},
			[]belief{believed("a", 1, 0, 2*second+1), believed("b", 2, 2*second, 3*second)}, true, false,
		},
		"told soon after the end of the grant": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second)}, []belief{told(believed("a", 1, 0, 2*second), 2*second+lateness)}, false, false,
		},
		"told late": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second)}, []belief{told(believed("a", 1, 0, 2*second), 2*second+lateness+1)}, false, true,
		},
		"past the end of the grant": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second)}, []belief{believed("a", 1, 0, 2*second+1)}, true, false,
		},
		"past the expiry, though no other program wanted the lock": {
			[]*grant{granted("a", 1, 0, never, 2*second)}, []belief{believed("a", 1, 0, 5*second)}, true, false,
		},
		"until the expiry by a clock that is wrong by the allowance": {
			[]*grant{granted("a", 1, 0, never, 2*second)}, []belief{believed("a", 1, 0, 3*second)}, false, false,
		},
		"of a set, whose last lock fences all": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second), granted("b", 3, 2*second, never, 9*second)},
			[]belief{fenced(believed("a", 1, 0, 2*second), 2), believed("b", 3, 2*second, 3*second)}, false, false,
		},
		"of a set, whose number is that of the next grant": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second), granted("b", 2, 2*second, never, 9*second)},
			[]belief{fenced(believed("a", 1, 0, 2*second), 2), believed("b", 2, 2*second, 3*second)}, true, false,
		},
		"of a set that was not acquired, and ended": {
			[]*grant{granted("a", 1, 0, 2*second, 9*second)}, []belief{{owner: "a", isSet: true, span: span{0, 2 * second}}}, false, false,
		},
		"of a set that was not acquired, and is renewed": {
			[]*grant{renewedAt(granted("a", 1, 0, never, 9*second), 9*second)}, []belief{{owner: "a", isSet: true, span: span{0, 2 * second}}}, true, false,
		},
		"no grant": {nil, []belief{believed("a", 1, 0, second)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			record := newRecord(&history{start: start, beliefs: test.beliefs}, test.grants, nil, second)
			found := record.checkHeld()
			if test.isFound != (len(found) > 0) {
				t.Errorf("violations %q, want any: %t", found, test.isFound)
			}
			if late := record.checkTold(); test.isLate != (len(late) > 0) {
				t.Errorf("told late: %q, want any: %t", late, test.isLate)
			}
		})
	}
}
