package robustness_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestLiveness shows for small histories what is a violation. Requests get through all the
// time unless the case says otherwise, and a client of replica 0 waits.
func TestLiveness(t *testing.T) {
	start := time.Now().Round(0)
	granted := func(owner string, token int64, from, to, ttl time.Duration) *grant {
		made := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{ExpireTime: new(v1alpha1.NewTimestamp(start.Add(from + ttl)))}}
		return &grant{key: "lock:k", owner: owner, token: token, from: from, to: to, made: made, last: made}
	}
	waits := func(sent, answered, wait time.Duration, outcome outcome) operation {
		return operation{kind: acquire, key: "k", owner: "waiter", sent: sent, answered: answered, wait: wait, outcome: outcome, ttl: second}
	}
	always := passage{open: []span{{0, 100 * second}}, watching: []span{{0, 100 * second}}}
	cases := map[string]struct {
		grants    []*grant
		operation operation
		passage   passage
		faults    []window
		want      []string
	}{
		"served at once": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 10*second+20*time.Millisecond, never, 60*second)},
			waits(5*second, 11*second, 20*second, done), always, nil, nil,
		},
		"served 3 s after the release": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, nil, []string{"wanted"},
		},
		"the same, while the watch was cut": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, []window{{cutWatch.name, 0, span{0, 20 * second}}}, []string{"wanted"},
		},
		"the same, and the clock of the replica was stepped in the middle": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, []window{{stepBack.name, 0, span{8 * second, 11500 * time.Millisecond}}}, nil,
		},
		"the same, and that of another replica": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, []window{{stepBack.name, 1, span{8 * second, 11500 * time.Millisecond}}}, []string{"wanted"},
		},
		"the same, while an open watch showed nothing": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), passage{open: always.open}, nil, nil,
		},
		"the same, and served more than 6 s after the release": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 16*second+1, never, 60*second)},
			waits(5*second, 16*second+1, 20*second, done), passage{open: always.open}, nil, []string{"wanted"},
		},
		"served 3 s after the release, whose delete the watch lost": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done),
			passage{open: always.open, watching: always.open, lost: map[string][]time.Duration{v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", "k").ObjectName(): {10 * second}}}, nil, nil,
		},
		"the same, but requests got through from 12 s on": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), passage{open: []span{{0, 9 * second}, {12 * second, 100 * second}}}, nil, nil,
		},
		"the same, and the client began to wait at 12 s": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("waiter", 2, 13*second, never, 60*second)},
			waits(12*second, 13*second, 20*second, done), always, nil, nil,
		},
		"another client took the lock in between, under a fault": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("b", 2, 11*second, 12*second, 60*second), granted("waiter", 3, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, []window{{delayRequests.name, 1, span{0, 20 * second}}}, nil,
		},
		"an expired lock taken over 3 s late": {
			[]*grant{granted("a", 1, 0, 15*second, 10*second), granted("waiter", 2, 15*second+1, never, 60*second)},
			waits(5*second, 15*second, 20*second, done), always, nil, []string{"wanted"},
		},
		"an expired lock taken over within the allowance and two seconds": {
			[]*grant{granted("a", 1, 0, 13*second, 10*second), granted("waiter", 2, 13*second+1, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, nil, nil,
		},
		"granted with the stamps of a clock that was an hour behind, while another client waited": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("b", 2, 10*second, 11*second, -60*second), granted("waiter", 3, 11*second, never, 60*second)},
			waits(5*second, 11*second, 20*second, done), always, nil, nil,
		},
		"twice served a second late without faults": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("b", 2, 11*second, 12*second, 60*second), granted("waiter", 3, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, nil, []string{"wanted"},
		},
		"the same, while a watch was stalled for a part of it": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second), granted("b", 2, 11*second, 12*second, 60*second), granted("waiter", 3, 13*second, never, 60*second)},
			waits(5*second, 13*second, 20*second, done), always, []window{{stallWatch.name, 0, span{0, 11 * second}}}, nil,
		},
		"told that a lock is held that had been free for 9 s, with no way to the API server": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second)},
			waits(5*second, 19*second, 14*second, timedOut), passage{}, nil, []string{"timeouts"},
		},
		"told that a lock is held that had been free for 7 s, with no way to the API server": {
			[]*grant{granted("a", 1, 0, 10*second, 60*second)},
			waits(5*second, 17*second, 12*second, timedOut), passage{}, nil, nil,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			run := &history{start: start, operations: []operation{test.operation}, faults: test.faults}
			other := always
			for _, fault := range test.faults {
				if fault.name == cutWatch.name {
					other.watching = subtract(other.watching, []span{fault.span})
				}
			}
			record := newRecord(run, test.grants, []passage{test.passage, other}, second)
			record.end = 20 * second
			var got []string
			for _, violation := range append(record.checkWanted(), record.checkTimeouts()...) {
				check, _, _ := strings.Cut(violation, ":")
				got = append(got, check)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("violations of %q, want %q", got, test.want)
			}
		})
	}
}

// TestWantedOfSharedLines shows what else may hold up a line that replicas share: its home may be any of them.
func TestWantedOfSharedLines(t *testing.T) {
	always := passage{open: []span{{0, 100 * second}}, watching: []span{{0, 100 * second}}}
	for name, test := range map[string]struct {
		served time.Duration
		faults []window
		want   int
	}{
		"within 3 s":          {served: 13 * second},
		"after more than 3 s": {served: 13*second + 1, want: 1},
		"while another replica's clock was stepped":     {served: 14 * second, faults: []window{{stepBack.name, 1, span{9 * second, 11 * second}}}},
		"while answers to another replica were late":    {served: 14 * second, faults: []window{{delayRequests.name, 1, span{9 * second, 11 * second}}}},
		"while another replica's answers were all lost": {served: 14 * second, faults: []window{{oneWay.name, 1, span{9 * second, 11 * second}}}, want: 1},
		"long after answers were late":                  {served: 14 * second, faults: []window{{delayRequests.name, 1, span{2 * second, 5 * second}}}, want: 1},
	} {
		start := time.Now()
		made := func(owner string, token int64, from, to time.Duration) *grant {
			lock := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Owner: owner, AcquireTime: new(v1alpha1.NewTimestamp(start.Add(from))), ExpireTime: new(v1alpha1.NewTimestamp(start.Add(time.Minute)))}}
			return &grant{key: "lock:k", owner: owner, token: token, from: from, to: to, made: lock, last: lock}
		}
		waited := operation{kind: acquire, key: "k", owner: "waiter", sent: 5 * second, answered: test.served, wait: 20 * second, outcome: done, ttl: second}
		record := newRecord(&history{start: start, operations: []operation{waited}, faults: test.faults},
			[]*grant{made("a", 1, 0, 10*second), made("waiter", 2, test.served, never)}, []passage{always, always}, second)
		record.end, record.isShared = 20*second, true
		if violations := record.checkWanted(); len(violations) != test.want {
			t.Errorf("%s: %q", name, violations)
		}
	}
}

// TestCalmBound shows how the bound without faults depends on the machine.
func TestCalmBound(t *testing.T) {
	show := func(length time.Duration) []span { return slices.Repeat([]span{{second, second + length}}, 20) }
	for length, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond: boundCalm, 10 * time.Millisecond: boundCalm, 30 * time.Millisecond: 3 * boundCalm,
	} {
		calm := passage{open: []span{{0, 9 * second}}, watching: []span{{0, 9 * second}}, shows: show(length)}
		record := newRecord(&history{start: time.Now()}, nil, []passage{calm}, second)
		if got := record.calmBound(); got != want {
			t.Errorf("if probes are shown within %s: %s, want %s", length, got, want)
		}
	}
}

// TestRuns shows when requests get through, according to probes.
func TestRuns(t *testing.T) {
	start := time.Now()
	at := start.Add
	probed := func(sent, took time.Duration, succeeded bool) probe {
		return probe{sent: at(sent), created: at(sent + took/2), done: at(sent + took), shown: at(sent + took), succeeded: succeeded}
	}
	p := &path{
		probes: []probe{
			probed(0, 50*time.Millisecond, true), probed(second/2, 50*time.Millisecond, true), // one run
			probed(second, 50*time.Millisecond, false),
			probed(2*second, 50*time.Millisecond, true), probed(2500*time.Millisecond, 2*second, true), // too slow
			probed(5*second, 50*time.Millisecond, true), probed(7*second, 50*time.Millisecond, true), // a pause
			probed(7500*time.Millisecond, 50*time.Millisecond, true),
		},
		breaks: []broken{{at(7200 * time.Millisecond), at(7200 * time.Millisecond)}},
	}
	want := []span{
		{0, 550 * time.Millisecond}, {2 * second, 2050 * time.Millisecond}, {5 * second, 5050 * time.Millisecond},
		{7 * second, 7200 * time.Millisecond}, {7200 * time.Millisecond, 7550 * time.Millisecond},
	}
	if got := p.passage(start).open; !slices.Equal(got, want) {
		t.Errorf("open in %v, want %v", got, want)
	}
}

func TestReportAddsUp(t *testing.T) {
	dir := t.TempDir()
	one := part{Seed: 1, Tally: Tally{
		Operations: 10, Calls: map[string]int{"acquire: done": 4}, Faults: map[string]faultTally{"kill a replica": {1, 2}},
		Waits: map[class]waitTally{openReleased: {Count: 3, Over: map[int]int{10: 1}, LongestMillis: 12, Longest: "x"}}, Violations: []string{"v"},
	}}
	for range 2 {
		report, err := readReport(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := report.add(dir, one); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := got.Total
	if len(got.Parts) != 2 || sum.Operations != 20 || sum.Calls["acquire: done"] != 8 || sum.Faults["kill a replica"].Count != 2 ||
		sum.Waits[openReleased].Over[10] != 2 || sum.Waits[openReleased].LongestMillis != 12 || len(sum.Violations) != 2 {
		t.Errorf("two equal parts add up to %+v", sum)
	}
}
