package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// turns are two callers who take turns: the one that has released the lock comes again when the other one is about to
// release it.
type turns struct {
	etcd    *etcd
	engine  *engine.Engine
	answers chan answer
	// holder has the lock, and next has had it before.
	holder, next string
}

// startTurns returns turns after the first hand-off.
func startTurns(t *testing.T) *turns {
	t.Helper()
	made := newEtcd()
	begun := &turns{etcd: made, engine: start(t, made), answers: make(chan answer, 1), holder: "a", next: "b"}
	acquire(t, begun.engine, by("a"))
	queueUp(t.Context(), t, begun.engine, waiting("b", time.Hour), begun.answers)
	release(t, begun.engine, "a")
	begun.await(t)
	made.made()
	return begun
}

func (o *turns) await(t *testing.T) {
	t.Helper()
	if got := <-o.answers; got.err != nil {
		t.Fatal(got.err)
	}
	o.holder, o.next = o.next, o.holder
}

// turn releases the lock a moment before the next caller comes.
func (o *turns) turn(t *testing.T) {
	t.Helper()
	released := make(chan error, 1)
	go func() { released <- o.engine.Release(t.Context(), "default", key, lock.Proof{Owner: o.holder}) }()
	synctest.Wait()
	queueUp(t.Context(), t, o.engine, waiting(o.next, time.Hour), o.answers)
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	o.await(t)
}

// The queue is empty between any two turns, and yet it is one series: the waiters of other engines get their chance.
func TestCallersWhoTakeTurnsNeedOneWriteForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taking := startTurns(t)
		for range 63 {
			taking.turn(t)
		}
		if made := taking.etcd.made(); len(made) != 63 || slices.ContainsFunc(made, func(verb string) bool { return verb != "update" }) {
			t.Errorf("63 turns made the requests %v", made)
		}
		taking.turn(t)
		if made := taking.etcd.made(); !slices.Equal(made, []string{"delete", "create"}) {
			t.Errorf("the turn after 64 hand-offs made the requests %v", made)
		}
	})
}

// Those who hold the lock for longer than they stay away never leave it free, however long both take.
func TestSlowTurnsEndTheirSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taking := startTurns(t)
		const use, away = 3 * time.Second, 2 * time.Second
		begun := time.Now()
		for !slices.Contains(taking.etcd.made(), "delete") {
			if took := time.Since(begun); took > 10*time.Second+use {
				t.Fatalf("no engine but this one had a chance for %v", took)
			}
			pass(away)
			queueUp(t.Context(), t, taking.engine, waiting(taking.next, time.Hour), taking.answers)
			pass(use - away)
			release(t, taking.engine, taking.holder)
			taking.await(t)
		}
	})
}

func TestAReleaseWaitsForAFollowerAMomentOnly(t *testing.T) {
	cases := map[string]struct {
		heldFor, want time.Duration
	}{
		"released at once":     {0, time.Millisecond},
		"released after a use": {10 * time.Millisecond, 0},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			taking := startTurns(t)
			pass(test.heldFor)
			begun := time.Now()
			release(t, taking.engine, taking.holder)
			if took := time.Since(begun); took != test.want {
				t.Errorf("took %v, want %v", took, test.want)
			}
			if made := taking.etcd.made(); !slices.Equal(made, []string{"delete"}) {
				t.Errorf("requests: %v", made)
			}
		})
	}
	bubbleOf(t, "once, for a caller who is alone from then on", func(t *testing.T) {
		taking := startTurns(t)
		release(t, taking.engine, taking.holder)
		begun := time.Now()
		for range 10 {
			acquire(t, taking.engine, waiting("c", time.Hour))
			synctest.Wait() // The queue ends.
			release(t, taking.engine, "c")
		}
		if took := time.Since(begun); took > time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
	bubbleOf(t, "not for a lock that no one has waited for", func(t *testing.T) {
		engine := start(t, newEtcd())
		acquire(t, engine, by("a"))
		begun := time.Now()
		release(t, engine, "a")
		if took := time.Since(begun); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}

// The informer shows a grant some milliseconds later than its answer. Until then the engine need not read its own.
func TestAWaitForAGrantThatIsNotShownYetReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taking := startTurns(t)
		taking.etcd.mute(true)
		taking.turn(t)
		queueUp(t.Context(), t, taking.engine, waiting(taking.next, time.Hour), taking.answers)
		if made := taking.etcd.made(); !slices.Equal(made, []string{"update"}) {
			t.Errorf("requests: %v", made)
		}
		release(t, taking.engine, taking.holder)
		taking.await(t)
	})
}

// A caller may begin to wait while the answer to a release is lost. The release finds out how it has ended, and the
// watch may not tell of it.
func TestAnUnansweredReleaseTellsThoseWhoWait(t *testing.T) {
	cases := map[string]func(lose func(verb string) error) faults{
		"that has happened":     func(lose func(string) error) faults { return faults{after: lose} },
		"that has not happened": func(lose func(string) error) faults { return faults{before: lose} },
	}
	for title, inject := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquire(t, engine, by("a"))
			etcd.mute(true)
			answers := make(chan answer, 1)
			etcd.inject(inject(func(verb string) error {
				if verb != "delete" {
					return nil
				}
				etcd.inject(faults{})
				queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
				return errLostAnswer
			}))
			release(t, engine, "a")
			begun := time.Now()
			mustGet(t, answers)
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("acquired %v after the release", took)
			}
		})
	}
}
