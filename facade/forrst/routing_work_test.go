package forrst_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/machine"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// works is a service inside a bubble of synctest: a network would not let its clock move.
type works struct {
	// takes is how long the function takes. It ends with an answer, or with err.
	takes time.Duration
	err   error
	// cancelled says that the façade did not wait for the answer.
	cancelled bool
}

// RoundTrip implements [http.RoundTripper].
func (s *works) RoundTrip(request *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(request.Context()).GotConn(httptrace.GotConnInfo{})
	timer := time.NewTimer(s.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-request.Context().Done():
		s.cancelled = true
		return nil, request.Context().Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	recorder := httptest.NewRecorder()
	says(`"result":1`)(recorder, request)
	return recorder.Result(), nil
}

// renewals records attempts to renew, which fail with err.
type renewals struct {
	mu  sync.Mutex
	at  []time.Time
	err error
}

func (r *renewals) hook(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return r.err
}

func (r *renewals) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *renewals) attempts() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at)
}

// bubble is a façade inside a bubble of synctest, whose functions time out after a minute.
type bubble struct {
	*fixture

	service  *works
	renewals *renewals
	// pause is what the product has between renewals; the bubble has no jitter.
	pause func(ttl time.Duration, failures int) time.Duration
	// leave ends the context of calls.
	leave context.CancelFunc
	ctx   context.Context
}

func newBubble(t *testing.T, service *works, configure ...func(*testfacade.Settings)) *bubble {
	t.Helper()
	b := &bubble{service: service, renewals: &renewals{}}
	b.fixture = newFixtureWith(t, func(config *testfacade.Settings) {
		routingTo(t, "http://service", time.Minute, service)(config)
		for _, change := range configure {
			change(config)
		}
	})
	b.pause = b.door.RenewAfter(withoutJitter)
	b.before[locktest.Renew] = b.renewals.hook
	b.ctx, b.leave = context.WithCancel(t.Context())
	t.Cleanup(b.leave)
	return b
}

// withoutJitter is [lock.RenewalPause] without its random part, so that renewals can be counted.
func withoutJitter(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return ttl / 3
	}
	return min(min(100*time.Millisecond, ttl/20)<<(failures-1), ttl/10)
}

// lockFor is the lock extension with a ttl.
func lockFor(seconds string) string {
	return locked(`{"key":"k","ttl":{"value":` + seconds + `,"unit":"second"}}`)
}

// call calls a function of the service, in a goroutine of its own.
func (b *bubble) call(extensions string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		answers <- b.serve(httptest.NewRequestWithContext(b.ctx, http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("r.f", "", extensions))))
	}()
	return answers
}

// after lets time pass.
func after(length time.Duration) {
	time.Sleep(length) //nolint:forbidigo // Only the fake clock of the bubble moves.
	synctest.Wait()
}

func (b *bubble) wantRenewals(want int) {
	b.t.Helper()
	if got := len(b.renewals.attempts()); got != want {
		b.t.Errorf("%d renewals, want %d", got, want)
	}
}

// wantRenewedUntilNow expects renewals of the lock for 6 s at every third of its ttl, give or
// take a tenth, from the start to now.
func (b *bubble) wantRenewedUntilNow(start time.Time) {
	b.t.Helper()
	const ttl = 6 * time.Second
	last := start
	for _, at := range b.renewals.attempts() {
		if pause := at.Sub(last); pause < ttl*3/10 || pause > ttl*11/30 {
			b.t.Errorf("a renewal %s after the one before, with a ttl of %s", pause, ttl)
		}
		last = at
	}
	if pause := time.Since(last); pause > ttl*11/30 {
		b.t.Errorf("no renewal for %s, with a ttl of %s", pause, ttl)
	}
}

const theLock = "lock:r.f:k"

func TestLocksAreRenewedWhileTheirFunctionsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 51 * time.Second}) // not when a renewal is due
		start := time.Now()
		answers := b.call(lockFor("6"))
		after(49 * time.Second)
		b.wantHeld(theLock)
		b.wantRenewals(24)
		b.wantRenewedUntilNow(start)
		got := <-answers
		b.wantHeld()
		if got.status != 200 || strings.Contains(got.body, "lock-lost") {
			t.Errorf("got %s", got.body)
		}
		b.wantRenewals(25)
		b.wantRenewedUntilNow(start)
		after(time.Hour)
		b.wantRenewals(25)
	})
}

// With the random part, which spreads the renewals of locks of the same moment.
func TestRenewalsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 50 * time.Second})
		b.door.RenewAfter(b.pause)
		start := time.Now()
		answers := b.call(lockFor("6"))
		after(49 * time.Second)
		b.wantHeld(theLock)
		b.wantRenewedUntilNow(start)
		<-answers
		b.wantRenewedUntilNow(start)
		at := b.renewals.attempts()
		if at[1].Sub(at[0]) == at[2].Sub(at[1]) {
			t.Errorf("two pauses of %s", at[2].Sub(at[1]))
		}
	})
}

func TestLocksThatAreLongEnoughOrNotReleasedAreNotRenewed(t *testing.T) {
	for extension, left := range map[string][]string{
		lockFor("30"): nil,
		locked(`{"key":"k","ttl":{"value":6,"unit":"second"},"auto_release":false}`): {theLock},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, &works{takes: 9 * time.Second})
			if got := <-b.call(extension); got.status != 200 {
				t.Errorf("got %s", got.body)
			}
			b.wantRenewals(0)
			b.wantHeld(left...)
		})
	}
}

// What the façade believed of its locks before it was suspended counts for nothing.
func TestASuspendedMachineRenewsItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := machine.NewClock()
		b := newBubble(t, &works{takes: 5 * time.Second}, func(settings *testfacade.Settings) { settings.Clock = clock })
		answers := b.call(lockFor("30")) // to be renewed after 10 s
		after(500 * time.Millisecond)
		clock.Suspend(5 * time.Second)
		after(time.Second)
		b.wantRenewals(1)
		if got := <-answers; got.status != 200 || strings.Contains(got.body, "lock-lost") {
			t.Errorf("got %s", got.body)
		}
		b.wantRenewals(1)
	})
}

func TestASuspendedMachineDoesNotBelieveInItsLocks(t *testing.T) {
	for suspended, lost := range map[time.Duration]bool{0: false, 10 * time.Second: false, 29 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			clock := machine.NewClock()
			b := newBubble(t, &works{takes: 5 * time.Second}, func(settings *testfacade.Settings) { settings.Clock = clock })
			b.renewals.fail(lock.ErrUnavailable)
			b.before[locktest.Release] = func(context.Context) error { return lock.ErrUnavailable }
			answers := b.call(lockFor("30"))
			after(time.Second)
			clock.Suspend(suspended)
			if got := <-answers; got.status != 200 || strings.Contains(got.body, `{"key":"k","reason":"unknown"}`) != lost {
				t.Errorf("after %s: got %s", suspended, got.body)
			}
		})
	}
}

// The ttl begins at the grant, and the façade may learn of that late.
func TestTheFirstRenewalIsNotLate(t *testing.T) {
	for took, renewals := range map[time.Duration]int{
		0: 0, 100 * time.Millisecond: 0, time.Second: 1, 5 * time.Second: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, &works{takes: 1500 * time.Millisecond})
			b.granted = func() { <-time.After(took) }
			if got := <-b.call(lockFor("6")); got.status != 200 {
				t.Errorf("got %s", got.body)
			}
			b.wantRenewals(renewals)
		})
	}
}

func TestRenewalsThatFailAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		b.renewals.fail(lock.ErrUnavailable)
		answers := b.call(lockFor("30"))
		after(14 * time.Second)
		b.wantRenewals(6)
		b.renewals.fail(nil)
		if got := <-answers; got.status != 200 || strings.Contains(got.body, "lock-lost") {
			t.Errorf("got %s", got.body)
		}
		b.wantHeld()
	})
}

func TestTheAnswerTellsOfALostLock(t *testing.T) {
	for name, test := range map[string]struct {
		renewal, release error
		want             string
	}{
		"expired":                        {renewal: lock.ErrExpired, want: "expired"},
		"taken":                          {renewal: lock.ErrOwnerMismatch, want: "taken"},
		"released":                       {renewal: lock.ErrNotHeld, want: "released"},
		"expired, seen at its end":       {renewal: lock.ErrUnavailable, release: lock.ErrExpired, want: "expired"},
		"expired, after the caller left": {renewal: lock.ErrUnavailable, release: lock.ErrUnavailable, want: "unknown"},
		"not known to have been":         {renewal: nil, release: lock.ErrUnavailable, want: ""},
		"force-released before its end":  {renewal: nil, release: lock.ErrNotHeld, want: "released"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, &works{takes: 20 * time.Second})
				b.renewals.fail(test.renewal)
				b.before[locktest.Release] = func(context.Context) error { return test.release }
				got := <-b.call(lockFor("6"))
				entry := got.Extension("urn:k8s:forrst:ext:lock-lost")
				want := `{"key":"k","reason":"` + test.want + `"}`
				if test.want == "" {
					want = ""
				}
				if string(entry) != want || got.status != 200 || string(got.Result) != "1" {
					t.Errorf("got %s", got.body)
				}
			})
		})
	}
}

// Two callers can have the same owner token.
func TestALaterGrantIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 20 * time.Second})
		answers := b.call(locked(`{"key":"k","owner":"o","ttl":{"value":6,"unit":"second"}}`))
		after(time.Second)
		if err := b.locks.Release(t.Context(), namespace, theLock, lock.Proof{Owner: "o"}); err != nil {
			t.Fatal(err)
		}
		if other := b.post(envelopeWith(ping, "", locked(`{"key":"r.f:k","scope":"global","owner":"o","auto_release":false,`+ttl+`}`))); other.status != 200 {
			t.Fatal(other.body)
		}
		if got := <-answers; !strings.Contains(got.body, `{"key":"k","reason":"taken"}`) {
			t.Errorf("got %s", got.body)
		}
		b.wantHeld(theLock)
	})
}

func TestTheLockOutlivesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		start := time.Now()
		answers := b.call(lockFor("6"))
		after(10 * time.Second)
		b.leave()
		if got := <-answers; got.status != 499 || strings.Contains(got.body, "lock-lost") {
			t.Errorf("got %s", got.body)
		}
		after(29 * time.Second)
		b.wantHeld(theLock)
		b.wantRenewals(19)
		b.wantRenewedUntilNow(start)
		after(time.Second)
		b.wantHeld()
		if b.service.cancelled {
			t.Error("the service was left alone, though its answer ends the lock")
		}
	})
}

func TestWithoutALockTheServiceIsNotKeptBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		answers := b.call("")
		after(10 * time.Second)
		b.leave()
		if got := <-answers; got.status != 499 || !b.service.cancelled {
			t.Errorf("cancelled %t, %s", b.service.cancelled, got.body)
		}
	})
}

func TestTheLockOutlivesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		start := time.Now()
		got := <-b.call(lockFor("6") + `,{"urn":"urn:forrst:ext:deadline","options":{"value":15,"unit":"second"}}`)
		b.wantProblems(got, 504, "DEADLINE_EXCEEDED")
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("answered after %s", took)
		}
		b.wantHeld(theLock)
		b.Drain(t.Context())
		if took := time.Since(start); took != 40*time.Second {
			t.Errorf("released after %s", took)
		}
		b.wantHeld()
	})
}

func TestTheLockIsKeptWhenTheConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 9 * time.Second, err: io.ErrUnexpectedEOF})
		start := time.Now()
		got := <-b.call(lockFor("6"))
		b.wantFailure(got, "service", forward.Disconnected, "closed", true, 0)
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("answered after %s", took)
		}
		after(50 * time.Second)
		b.wantHeld(theLock)
		b.wantRenewals(29)
		b.wantRenewedUntilNow(start)
		after(time.Second)
		b.wantHeld()
	})
}

func TestAStopLeavesTheLockForTheRestOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		answers := b.call(lockFor("6"))
		after(10 * time.Second)
		b.leave()
		<-answers
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b.Drain(ctx)
		b.wantHeld(theLock)
		held, err := b.locks.Get(t.Context(), namespace, theLock)
		if err != nil {
			t.Fatal(err)
		}
		// A minute of the route, less the time until the stop.
		if left := time.Until(held.Spec.ExpireTime.Time); left < 45*time.Second || left > 46*time.Second {
			t.Errorf("the lock is left for %s", left)
		}
		after(time.Hour)
		b.wantHeld(theLock)
	})
}

func TestAPanicOfTheClientKeepsTheLockUntilTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, nil)
		got := <-b.call(lockFor("6"))
		b.wantProblems(got, 500, "INTERNAL_ERROR")
		b.wantHeld(theLock)
		after(time.Minute)
		b.wantHeld()
	})
}

func TestAPanicOfARenewalEndsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 20 * time.Second})
		b.before[locktest.Renew] = func(context.Context) error { panic("renewal") }
		if got := <-b.call(lockFor("30")); got.status != 200 {
			t.Errorf("got %s", got.body)
		}
		b.wantHeld()
	})
}
