package robustness_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const second = time.Second

// TestModel shows for small histories which behaviour the model accepts. The allowance and
// the error of clocks are a second.
func TestModel(t *testing.T) {
	granted := func(owner string, token int64, call, ret, ttl time.Duration) step {
		return step{kind: acquire, owner: owner, call: call, ret: ret, ttl: ttl, freeAt: call + ttl, outcome: done, token: token}
	}
	asked := func(kind kind, owner string, call, ret time.Duration, outcome outcome) step {
		return step{kind: kind, owner: owner, call: call, ret: ret, ttl: 10 * second, freeAt: call + 10*second, outcome: outcome}
	}
	seen := func(holder string, call, ret time.Duration) step {
		return step{kind: status, call: call, ret: ret, outcome: done, holder: holder}
	}
	cases := map[string]struct {
		steps []step
		want  bool
	}{
		"two holders one after the other": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "a", 2*second, 3*second, done), granted("b", 2, 4*second, 5*second, 10*second),
		}, true},
		"two holders at once": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("b", 2, 4*second, 5*second, 10*second),
		}, false},
		"a take-over at the end of the ttl": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("b", 2, 4*second, 10*second, 10*second),
		}, true},
		"a take-over just before the end of the ttl": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("b", 2, 4*second, 10*second-1, 10*second),
		}, false},
		"a take-over before a status that still shows the holder": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("b", 2, 4*second, 12*second, 10*second), seen("a", 13*second, 14*second),
		}, false},
		"a take-over before the end of a renewed lock": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(renew, "a", 8*second, 9*second, done), granted("b", 2, 11*second, 12*second, 10*second),
		}, false},
		"a refusal because of an unanswered renewal": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(renew, "a", 8*second, 30*second, unanswered),
			asked(acquire, "b", 16*second, 17*second, held),
		}, true},
		"a take-over in spite of an unanswered renewal": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(renew, "a", 8*second, 30*second, unanswered),
			granted("b", 2, 11*second, 12*second, 10*second),
		}, true},
		"a status that does not show the holder": {[]step{granted("a", 1, 0, 1*second, 10*second), seen("", 2*second, 3*second)}, true},
		"the same of a free lock": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "a", 2*second, 3*second, done), seen("", 4*second, 5*second),
		}, false},
		"a renewal after the end": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(renew, "a", 13*second, 14*second, done),
		}, false},
		"a renewal of a lock that others took": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("b", 2, 10*second, 11*second, 10*second), asked(renew, "a", 11*second, 12*second, done),
		}, false},
		"a renewal with the token of another grant": {[]step{
			granted("a", 1, 0, 1*second, 10*second), {kind: renew, owner: "a", call: second, ret: 2 * second, outcome: done, token: 2},
		}, false},
		"tokens that do not grow": {[]step{
			granted("a", 2, 0, 1*second, 10*second), asked(release, "a", 2*second, 3*second, done), granted("b", 1, 4*second, 5*second, 10*second),
		}, false},
		"a release of another holder's lock": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "b", 2*second, 3*second, done),
		}, false},
		"a lock that is gone although no client ended it": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(status, "", 2*second, 3*second, notFound),
		}, false},
		"a release that finds nothing although no client ended the lock": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "a", 2*second, 3*second, notFound),
		}, false},
		"an unanswered release may come into effect late": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "a", 2*second, 9*second, unanswered),
			asked(acquire, "b", 4*second, 5*second, held), granted("c", 2, 6*second, 7*second, 10*second),
		}, true},
		"an effect of an unanswered release before it was sent": {[]step{
			granted("a", 1, 0, 1*second, 10*second), granted("c", 2, 1*second, 2*second-1, 10*second), asked(release, "a", 2*second, 9*second, unanswered),
		}, false},
		"a forced release": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(forceRelease, "", 2*second, 3*second, done), granted("b", 2, 3*second, 4*second, 10*second),
		}, true},
		"a refusal by a free lock": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(release, "a", 2*second, 3*second, done), asked(acquire, "b", 4*second, 5*second, held),
		}, false},
		"a refusal long after the end": {[]step{
			granted("a", 1, 0, 1*second, 10*second), asked(acquire, "b", 14*second, 15*second, held),
		}, false},
		"a grant that no client was told of, with the stamp of a clock that was stepped": {[]step{
			{kind: acquire, owner: "a", ret: second, ttl: second, freeAt: second, outcome: done, token: 1, heldUntil: 60 * second}, seen("a", 5*second, 6*second),
		}, true},
		"the same with a right stamp": {[]step{
			{kind: acquire, owner: "a", ret: second, ttl: second, freeAt: second, outcome: done, token: 1, heldUntil: 2 * second}, seen("a", 5*second, 6*second),
		}, false},
		"a grant that no client was told of, and its end": {[]step{
			granted("a", 1, 0, 5*second, 10*second), asked(cleanup, "a", 0, 8*second, unanswered),
			asked(acquire, "b", 4*second, 5*second, held), granted("c", 2, 6*second, 7*second, 10*second),
		}, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var operations []porcupine.Operation
			for _, step := range test.steps {
				operations = append(operations, porcupine.Operation{Input: step, Call: int64(step.call), Return: int64(step.ret)})
			}
			checked := model{allowance: second, skew: second}
			if got := porcupine.CheckOperations(checked.porcupine(), operations); got != test.want {
				t.Errorf("accepted: %t, want %t", got, test.want)
			}
		})
	}
}

// TestRenewalsThatAreAnsweredLate shows what a renewal may be told that etcd has: its answer was lost, and
// the new expiry, ten seconds after it was sent, had passed when the replica repeated it.
func TestRenewalsThatAreAnsweredLate(t *testing.T) {
	acquired := func(owner string, token int64, sent, answered, ttl time.Duration) operation {
		return operation{kind: acquire, key: "k", owner: owner, token: token, sent: sent, answered: answered, ttl: ttl, outcome: done}
	}
	first := acquired("a", 1, 0, second, 30*second)
	renewed := func(answered time.Duration, outcome outcome) operation {
		return operation{kind: renew, key: "k", owner: "a", sent: 5 * second, answered: answered, ttl: 10 * second, outcome: outcome}
	}
	cases := map[string]struct {
		operations []operation
		// inEtcd is the ttl of the renewal that etcd has; zero if it has none.
		inEtcd time.Duration
		want   bool
		// expired is when the grant would have ended without it, long ago if it is zero, and ended when it has; zero is after 20 s.
		expired, ended time.Duration
	}{
		"gone after the new expiry": {operations: []operation{first, renewed(17*second, notFound), acquired("b", 2, 18*second, 19*second, second)}, inEtcd: 10 * second, want: true},
		"gone before it":            {operations: []operation{first, renewed(13*second, notFound)}, inEtcd: 10 * second},
		"gone, though etcd shows the renewal of an earlier call late": {operations: []operation{acquired("a", 1, 0, second, 2*second), renewed(6*second, notFound)}, inEtcd: second, want: true},
		"another client's":                             {operations: []operation{first, acquired("b", 2, 16*second, 17*second, 9*second), renewed(18*second, mismatch)}, inEtcd: 10 * second, want: true},
		"another client's too soon":                    {operations: []operation{first, acquired("b", 2, 13*second, 14*second, 9*second), renewed(18*second, mismatch)}, inEtcd: 10 * second, expired: 30 * second},
		"another client's, though etcd has no renewal": {operations: []operation{first, acquired("b", 2, 16*second, 17*second, 9*second), renewed(18*second, mismatch)}},
		"another client's, after the end of a renewal that came too late": {
			operations: []operation{acquired("a", 1, 0, second, 5*second), acquired("b", 2, 8*second, 9*second, 9*second), renewed(10*second, mismatch)},
			inEtcd:     10 * second, expired: 5 * second, ended: 8 * second, want: true,
		},
		"another client's, though the renewal came in time": {
			operations: []operation{first, acquired("b", 2, 8*second, 9*second, 9*second), renewed(10*second, mismatch)},
			inEtcd:     10 * second, expired: 30 * second, ended: 8 * second,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			grants := []*grant{
				{key: "lock:k", owner: "a", token: 1, from: second, to: 20 * second},
				{key: "lock:k", owner: "b", token: 2, from: 20 * second, to: never},
			}
			for _, grant := range grants {
				grant.made = &v1alpha1.Lock{Spec: v1alpha1.LockSpec{AcquireTime: &v1alpha1.Timestamp{}, ExpireTime: &v1alpha1.Timestamp{}}}
				grant.last = grant.made
			}
			if test.ended > 0 {
				grants[0].to, grants[1].from = test.ended, test.ended
			}
			history := &history{start: time.Now(), operations: test.operations}
			if test.expired > 0 {
				expires := v1alpha1.NewTimestamp(history.start.Add(test.expired))
				grants[0].made = &v1alpha1.Lock{Spec: v1alpha1.LockSpec{AcquireTime: &v1alpha1.Timestamp{}, ExpireTime: &expires}}
			}
			if test.inEtcd > 0 {
				grants[0].renewals = []renewal{{seen: 5*second + 1, ttl: test.inEtcd}}
			}
			record := newRecord(history, grants, []passage{{open: []span{{0, 100 * second}}}}, second)
			record.end = 100 * second
			checked, steps := model{allowance: second, skew: second}, record.steps()
			if got := porcupine.CheckOperations(checked.porcupine(), steps["k"]); got != test.want {
				t.Errorf("accepted: %t, want %t", got, test.want)
			}
			// Its client knows that the new expiry may be in force, whatever it is told.
			if violations := record.checkExclusion(steps, t.TempDir()); test.want && len(violations) > 0 {
				t.Error(violations)
			}
		})
	}
}

// TestReleases shows how often an owner may be told that it has released its lock.
func TestReleases(t *testing.T) {
	released := func(at time.Duration, outcome outcome) operation {
		return operation{kind: release, key: "k", owner: "a", sent: at, answered: at + second, outcome: outcome}
	}
	for name, test := range map[string]struct {
		operations []operation
		grants     []*grant
		isFound    bool
	}{
		"once":                   {[]operation{released(0, done), released(0, notFound)}, []*grant{{owner: "a"}}, false},
		"twice":                  {[]operation{released(0, done), released(0, done)}, []*grant{{owner: "a"}}, true},
		"once for each of two":   {[]operation{released(0, done), released(5*second, done)}, []*grant{{owner: "a"}, {owner: "a"}}, false},
		"after one of no answer": {[]operation{released(0, unanswered), released(5*second, done)}, []*grant{{owner: "a"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			record := newRecord(&history{start: time.Now(), operations: test.operations}, test.grants, nil, second)
			if found := record.checkReleases(); test.isFound != (len(found) > 0) {
				t.Errorf("violations %q, want any: %t", found, test.isFound)
			}
		})
	}
}

// TestAHoldThatEndsByForceBeforeItsClientLearnsOfIt shows that such a hold overlaps no other.
func TestAHoldThatEndsByForceBeforeItsClientLearnsOfIt(t *testing.T) {
	slow := operation{kind: acquire, key: "k", owner: "a", token: 1, sent: 0, answered: 10 * second, ttl: 30 * second, outcome: done}
	forced := operation{kind: forceRelease, key: "k", sent: 5 * second, answered: 6 * second, outcome: done}
	next := operation{kind: acquire, key: "k", owner: "b", token: 2, sent: 6 * second, answered: 7 * second, ttl: 30 * second, outcome: done}
	for name, test := range map[string]struct {
		operations []operation
		want       int
	}{
		"ended by force": {[]operation{slow, forced, next}, 0},
		"not ended":      {[]operation{slow, next}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			grants := []*grant{
				{key: "lock:k", owner: "a", token: 1, from: second, to: 5500 * time.Millisecond},
				{key: "lock:k", owner: "b", token: 2, from: 6500 * time.Millisecond, to: never},
			}
			for _, grant := range grants {
				grant.made = &v1alpha1.Lock{Spec: v1alpha1.LockSpec{
					AcquireTime: &v1alpha1.Timestamp{}, ExpireTime: new(v1alpha1.NewTimestamp(time.Now().Add(time.Hour))),
				}}
				grant.last = grant.made
			}
			record := newRecord(&history{start: time.Now(), operations: test.operations}, grants, []passage{{open: []span{{0, 100 * second}}}}, second)
			record.end = 100 * second
			if violations := record.checkExclusion(record.steps(), t.TempDir()); len(violations) != test.want {
				t.Errorf("got %d violations, want %d: %v", len(violations), test.want, violations)
			}
		})
	}
}
