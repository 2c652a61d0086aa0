package engine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// slowly delays the answer to the first write of a verb beyond the ttl, as in a process that is stopped or
// an API server that is overloaded.
func slowly(verb string) faults {
	var first sync.Once
	return faults{after: func(got string) error {
		if got == verb {
			first.Do(func() { pass(40 * time.Second) })
		}
		return nil
	}}
}

// wantNext receives the next answer and fails unless it is a grant to the owner, with a token
// larger than last. It returns the token.
func wantNext(t *testing.T, answers <-chan answer, owner string, last int64) int64 {
	t.Helper()
	got := <-answers
	if got.err != nil || got.owner != owner || got.token <= last {
		t.Fatalf("%s got token %d, %v; want %s to get one larger than %d", got.owner, got.token, got.err, owner, last)
	}
	return got.token
}

// A caller that waits is told that its grant is over before it could have it. The next one need not wait for the allowance.
func TestAGrantOfAWaiterThatLapsesIsEnded(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		bubbles(t, verb, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			isHandOff := verb == "update"
			if isHandOff {
				acquire(t, engine, by("a"))
			}
			etcd.inject(slowly(verb))
			lapsed, next := make(chan answer, 1), make(chan answer, 1)
			queueUp(t.Context(), t, engine, waiting("b", time.Hour), lapsed)
			queueUp(t.Context(), t, engine, waiting("c", time.Hour), next)
			if isHandOff {
				release(t, engine, "a")
			}
			if got := <-lapsed; !errors.Is(got.err, lock.ErrUnavailable) || errors.Is(got.err, lock.ErrInvalid) {
				t.Errorf("got %v, want ErrUnavailable", got.err)
			}
			began := time.Now()
			wantNext(t, next, "c", 1)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("the next one has it after %v", took)
			}
			// Its place is kept.
			again := make(chan answer, 2)
			queueUp(t.Context(), t, engine, waiting("d", time.Hour), again)
			queueUp(t.Context(), t, engine, waiting("b", time.Hour), again)
			release(t, engine, "c")
			token := wantNext(t, again, "b", 1)
			release(t, engine, "b")
			wantNext(t, again, "d", token)
			release(t, engine, "d")
		})
	}
}

// A ttl that no answer can keep is the mistake of the caller, also of one that waits.
func TestAWaitWithATTLThatNoAnswerKeeps(t *testing.T) {
	for title, isAdmitted := range map[string]bool{"stamped by the engine": false, "stamped by admission": true} {
		bubbleOf(t, title, func(t *testing.T) {
			behind := newAdmitting()
			engine := start(t, behind.etcd)
			if isAdmitted {
				engine = startAdmitted(t, behind)
			}
			behind.inject(faults{after: func(string) error {
				pass(5 * time.Millisecond)
				return nil
			}})
			hopeless := waiting("a", 30*time.Second)
			hopeless.TTL = time.Millisecond
			if _, err := engine.Acquire(t.Context(), "default", hopeless); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
			pass(10 * time.Millisecond)
			behind.mustBeFree(t)
		})
	}
}

// A caller that does not wait would try for ever with a ttl that no answer can keep, and is told so. With a longer one, it is
// the API server that is slow.
func TestAGrantThatLapsesBeforeItsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.inject(faults{after: func(verb string) error {
			if verb == "create" {
				pass(1500 * time.Millisecond)
			}
			return nil
		}})
		for ttl, want := range map[time.Duration]error{time.Millisecond: lock.ErrInvalid, 99 * time.Millisecond: lock.ErrInvalid, 100 * time.Millisecond: lock.ErrUnavailable} {
			request := waiting("a", 0)
			request.TTL = ttl
			_, err := engine.Acquire(t.Context(), "default", request)
			for _, each := range []error{lock.ErrInvalid, lock.ErrUnavailable} {
				if isIt := errors.Is(want, each); errors.Is(err, each) != isIt {
					t.Errorf("ttl %s: %v", ttl, err)
				}
			}
			if invalid, ok := errors.AsType[*lock.InvalidError](err); ok && invalid.Problems[0].Field != "spec.ttl" {
				t.Errorf("ttl %s: %v", ttl, err)
			}
			etcd.mustBeFree(t)
		}
	})
}
