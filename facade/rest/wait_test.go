package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func (f *fixture) awaitQueue(length int) {
	f.t.Helper()
	synctest.Wait()
	if got := f.locks.Waiting("payments", theReport); got != length {
		f.t.Fatalf("%d callers wait, want %d", got, length)
	}
}

// beginPost sends a request that waits in a goroutine of its own.
func (f *fixture) beginPost(headers ...string) <-chan answer {
	answered := make(chan answer, 1)
	go func() { answered <- f.do(http.MethodPost, report, waiting, headers...) }()
	return answered
}

// postOf returns a request for the lock.
func postOf(ctx context.Context, body string) *http.Request {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, report, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	return request
}

const waiting = `{"ttl_seconds":60,"wait_seconds":30}`

func TestAWaitThatRunsOutIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.acquire(report, ofSixty)
		waits := f.beginPost("User", "bob")
		f.awaitQueue(1)
		f.clock.Step(30 * time.Second)
		if got := (<-waits).want(http.StatusLocked, "lock-held"); got.header.Get("Retry-After") != "30" || got.problem().Holder != "alice" {
			t.Errorf("%v, %s", got.header, got.body)
		}
	})
}

// A right that is taken away ends no wait, but counts for the next call.
func TestAWaitGoesOnAsItWasPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := &callers{}
		f := newFixture(t, func(s *testfacade.Settings) { s.Access = known })
		token := f.acquire(report, ofSixty)
		waits := f.beginPost("User", "bob")
		f.awaitQueue(1)
		known.deny = []string{"bob create"}
		f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
		granted := (<-waits).want(http.StatusCreated).lock()
		f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", granted.LockToken, "User", "bob").want(http.StatusForbidden, "forbidden")
	})
}

// All calls of one request wait as one: when one is granted the lock, the others are answered with the same grant.
func TestARepeatedRequestIsAnsweredWithTheOneThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		token := f.acquire(report, ofSixty)
		var posted []<-chan answer
		for calls := range 3 {
			posted = append(posted, f.beginPost("User", "bob", "Idempotency-Key", "0123456789abcdef"))
			f.awaitQueue(calls + 1)
		}
		f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
		granted := (<-posted[0]).want(http.StatusCreated).lock()
		for _, repeated := range posted[1:] { // No time passes.
			if found := (<-repeated).want(http.StatusCreated).lock(); found.LockToken != granted.LockToken {
				t.Errorf("first %+v, then %+v", granted, found)
			}
		}
	})
}

// What has become of the grant of a request is told to each of its calls; none gets a second grant.
func TestARepeatedRequestWhoseGrantHasEndedIsTold(t *testing.T) {
	for title, end := range map[string]locktest.Verb{"before it is read": locktest.Get, "before it is renewed": locktest.Renew} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				token := f.acquire(report, ofSixty)
				first := f.beginPost("User", "bob", "Idempotency-Key", "0123456789abcdef")
				f.awaitQueue(1)
				repeated := f.beginPost("User", "bob", "Idempotency-Key", "0123456789abcdef")
				f.awaitQueue(2)
				f.locks.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
					if call.Verb == end {
						f.locks.SetHooks(locktest.Hooks{})
						return f.locks.ForceRelease(ctx, call.Namespace, call.Key, "over")
					}
					return nil
				}})
				f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
				(<-first).want(http.StatusCreated)
				(<-repeated).want(http.StatusGone, "lock-ended")
				f.do(http.MethodGet, report, "").want(http.StatusNotFound, "lock-not-found")
			})
		})
	}
}

// A call that may be repeated looks for its grant by a read: a try would pass those that wait already.
func TestARepeatableCallThatWaitsPassesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.acquire(report, ofSixty)
		f.locks.Calls()
		waits := f.beginPost("User", "bob", "Idempotency-Key", "0123456789abcdef")
		f.awaitQueue(1)
		var made []string
		for _, call := range f.locks.Calls() {
			made = append(made, fmt.Sprint(call.Verb, " ", call.Request.Wait))
		}
		if diff := cmp.Diff([]string{"get 0s", "acquire 30s"}, made); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.clock.Step(time.Minute)
		<-waits
	})
}

// brokenWriter is a connection that is gone.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// brokenFlush takes what is written, but does not get rid of it.
type brokenFlush struct{ *httptest.ResponseRecorder }

func (brokenFlush) FlushError() error { return errors.New("broken pipe") }

func TestAnAcquireThatCannotBeAnsweredLeaksNoLock(t *testing.T) {
	for name, writer := range map[string]http.ResponseWriter{"write": brokenWriter{httptest.NewRecorder()}, "flush": brokenFlush{httptest.NewRecorder()}} {
		f := newFixture(t)
		f.ServeHTTP(writer, postOf(t.Context(), ofSixty))
		if keys := f.left(); len(keys) > 0 {
			t.Errorf("%s: left: %q", name, keys)
		}
	}
}

// A call that may be repeated looks for its lock first, which is a read. It does not wait for the turn of that.
func TestAShortWaitThatMayBeRepeatedHasARate(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Server.Limits, s.Server.Clock = limits.Limits{RatePerCaller: 2}, s.Clock
	})
	f.acquire(report, ofSixty) // Each costs a review, too.
	f.do(http.MethodGet, report, "").want(http.StatusOK)
	f.locks.Calls()
	f.do(http.MethodPost, report, `{"ttl_seconds":60,"wait_seconds":0.5}`, "Idempotency-Key", "0123456789abcdef").want(http.StatusTooManyRequests, "too-many-calls")
	if calls := f.locks.Calls(); len(calls) > 0 {
		t.Errorf("a refused call asked for %+v", calls)
	}
}

// What fails costs as much as what does not: otherwise a caller without a right, or with faulty requests, has no rate.
func TestCallsThatFailCountAgainstTheRate(t *testing.T) {
	for name, test := range map[string]struct {
		who, method, path, body string
		status, calls           int
	}{
		// Two reviews are two more.
		"without the right": {"eve", http.MethodPost, report, ofSixty, http.StatusForbidden, 2},
		"a faulty body":     {"bob", http.MethodPost, report, "{", http.StatusBadRequest, 3},
		"no JSON":           {"bob", http.MethodPost, report, "\ufeff", http.StatusBadRequest, 3},
		"a faulty query":    {"bob", http.MethodGet, report + "?watch=1&watch=2", "", http.StatusBadRequest, 4},
		"no room":           {"bob", http.MethodPost, report, ofSixty + strings.Repeat(" ", 20_000), http.StatusServiceUnavailable, 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(s *testfacade.Settings) {
				s.Access, s.Server.Clock = &callers{deny: []string{"eve create"}}, s.Clock
				s.Server.Limits = limits.Limits{RatePerCaller: 2, BodyBytes: 10_000}
			})
			for range test.calls {
				f.do(test.method, test.path, test.body, "User", test.who).want(test.status)
			}
			f.do(test.method, test.path, test.body, "User", test.who).want(http.StatusTooManyRequests, "too-many-calls")
		})
	}
}

// answering tells how much of the bodies is counted while an answer is written.
type answering struct {
	*httptest.ResponseRecorder

	f       *fixture
	counted int64
}

func (w *answering) Write(body []byte) (int, error) {
	w.counted = w.f.Limiter().BodyBytes()
	return w.ResponseRecorder.Write(body)
}

// The mistakes have parts of the body.
func TestAFaultyAcquireKeepsItsRoomUntilItIsAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		body   string
		counts bool
	}{
		"a mistake": {`{"ttl_seconds":[1]}`, true}, "no JSON": {`{`, true}, "none": {ofSixty, false},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 50 << 10
			f := newFixture(t)
			sent := &answering{httptest.NewRecorder(), f, 0}
			f.ServeHTTP(sent, postOf(t.Context(), test.body+strings.Repeat(" ", size)))
			if counts := sent.counted >= size; counts != test.counts {
				t.Errorf("%d bytes are counted while the answer is sent: %s", sent.counted, sent.Body)
			}
			if left := f.Limiter().BodyBytes(); left != 0 {
				t.Errorf("%d bytes are still counted", left)
			}
		})
	}
}

// What is wrong is told at once: the clock stands still.
func TestAFaultyAcquireDoesNotWaitForItsTurn(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Server.Limits, s.Server.Clock = limits.Limits{RatePerCaller: 2}, s.Clock
	})
	for range 3 {
		f.do(http.MethodPost, report, "{").want(http.StatusBadRequest, "invalid-request")
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	answered := httptest.NewRecorder()
	f.ServeHTTP(answered, postOf(ctx, `{"ttl_seconds":0,"wait_seconds":30}`))
	if answered.Code != http.StatusTooManyRequests {
		t.Errorf("status %d", answered.Code)
	}
}

// A value that is escaped may be six times as long.
func TestAnAnswerRepeatsNoLargePartOfARequest(t *testing.T) {
	large := strings.Repeat("<", 60<<10)
	for name, members := range map[string]string{
		"a wrong type": `"reason":["` + large + `"]`, "a number": `"priority":"` + large + `"`, "a function": `"function":"` + large + `"`,
		"a reference": `"holder_ref":{"api_version":"` + large + `","kind":"Pod","name":"x","uid":"u"}`,
	} {
		refused := newFixture(t).do(http.MethodPost, report, `{"ttl_seconds":60,`+members+`}`).want(http.StatusBadRequest, "invalid-request")
		if len(refused.problem().Errors) == 0 || len(refused.body) > 2048 {
			t.Errorf("%s: %d bytes: %.500s", name, len(refused.body), refused.body)
		}
	}
}

// tokenless grants locks whose fencing token cannot be read, as of one that is being deleted.
type tokenless struct{ *locktest.Backend }

func (b tokenless) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	granted, err := b.Backend.Acquire(ctx, namespace, request)
	if err != nil {
		return nil, err
	}
	granted = granted.DeepCopy()
	granted.Spec.FencingToken, granted.ResourceVersion = nil, ""
	return granted, nil
}

func TestAnAcquireThatFailsAfterItsGrantIsTakenBack(t *testing.T) {
	granted := locktest.New()
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = tokenless{granted} })
	f.do(http.MethodPost, report, ofSixty).want(http.StatusInternalServerError)
	if left := granted.All(); len(left) > 0 {
		t.Errorf("left %+v", left)
	}
}
