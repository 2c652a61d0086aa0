package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// ofOneKey are one call of each kind.
var ofOneKey = []ask{
	{verb: "acquire", key: "k"}, {verb: "renew", key: "k"}, {verb: "release", key: "k"}, {verb: "force", key: "k"}, {verb: "status", key: "k"}, {verb: "list"},
}

func withLimits(bounds limits.Limits) func(*testfacade.Settings) {
	return func(s *testfacade.Settings) { s.Server.Limits = bounds }
}

// A call counts while it waits, at both doors together, and goes on when it has the lock.
func TestACallerAtItsLimitIsRefusedAtBothDoors(t *testing.T) {
	for name, test := range map[string]struct {
		limits limits.Limits
		who    string
		status int
	}{
		"of one caller": {limits.Limits{InFlight: limits.DefaultShares}, "alice", http.StatusTooManyRequests},
		"of all":        {limits.Limits{InFlight: 1}, "bob", http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			atEachDoor(t, func(t *testing.T, door string) {
				synctest.Test(t, func(t *testing.T) {
					d := openDoors(t, withLimits(test.limits))
					release := d.hold("held")
					waits := d.begin(door, "alice", ask{verb: "acquire", key: "held", wait: "60"})
					synctest.Wait()
					d.locks.Calls()
					for other := range doorways {
						for _, refused := range append([]ask{{verb: "acquire", key: "held", wait: "60"}}, ofOneKey...) {
							d.ask(other, test.who, refused).want(test.status)
						}
					}
					d.wantNothingAsked()
					release()
					if got := <-waits; got.status/100 != 2 {
						t.Errorf("the call that waited: %s", got.body)
					}
					d.locks.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { panic("x") }})
					for range 2 { // There is room again, also after a panic.
						d.ask(door, test.who, ask{verb: "status", key: "k"}).want(http.StatusInternalServerError)
					}
				})
			})
		})
	}
}

// What a caller asks of the API server has a rate. Its renewals and releases have one of their own.
func TestACallerAtItsRateIsToldWhenToTryAgain(t *testing.T) {
	for name, refused := range map[string]ask{
		"acquire": {verb: "acquire", key: "c"}, "a wait for half a turn": {verb: "acquire", key: "c", wait: "0.2"}, "force": {verb: "force", key: "a"},
		"status": {verb: "status", key: "a"}, "list": {verb: "list"}, "waiters": {verb: "waiters", key: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			atEachDoor(t, func(t *testing.T, door string) {
				d := openDoors(t, withLimits(limits.Limits{RatePerCaller: 2}))
				token := d.acquire(door, "a") // Each costs a review, too.
				d.ask(door, "alice", ask{verb: "status", key: "a"}).want(http.StatusOK)
				d.locks.Calls()
				if got := d.ask(door, "alice", refused).want(http.StatusTooManyRequests); got.header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
				}
				d.wantNothingAsked()
				for _, other := range []struct {
					who string
					ask ask
				}{{"alice", ask{verb: "renew", key: "a", token: token}}, {"alice", ask{verb: "release", key: "a", token: token}}, {"bob", ask{verb: "acquire", key: "e"}}} {
					if got := d.ask(door, other.who, other.ask); got.status/100 != 2 {
						t.Errorf("%s of %s: status %d: %s", other.ask.verb, other.who, got.status, got.body)
					}
				}
				d.clock.Step(time.Second)
				d.acquire(door, "c")
			})
		})
	}
}

const holderRef = `"holder_ref":{"api_version":"v1","kind":"Pod","name":"worker-0","uid":"pod-0"}`

// What the API server is asked for a call has its rate before it is asked.
func TestACallerAtItsRateHasNoHolderLookedFor(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t, withLimits(limits.Limits{RatePerCaller: 1}))
		for index, status := range []int{0, http.StatusTooManyRequests} { // The review of the right is another one.
			got := d.ask(door, "alice", ask{verb: "acquire", key: fmt.Sprint("k-", index), members: holderRef})
			if status != 0 {
				got.want(status)
			}
			if holders, reviews, calls := d.holders.asked.Load(), d.users.asked.Load(), len(d.locks.Calls()); holders != 1 || reviews != 1 || calls != 1-index {
				t.Errorf("%d reads of holders and %d reviews, and %d requests for call %d", holders, reviews, calls, index)
			}
		}
	})
}

// A caller that goes on although it was told to wait costs next to nothing: it is answered late, what is refused was not
// reviewed, and what its bodies take meanwhile is bounded. A body without room is held back all the same.
func TestACallerThatGoesOnIsAnsweredLateAndItsBodiesAreBounded(t *testing.T) {
	const padding, begun, refused = 20_000, 4, 10
	atEachDoor(t, func(t *testing.T, door string) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoors(t, withLimits(limits.Limits{RatePerCaller: 1, BodyBytes: (begun + refused) * (padding + 1000)}))
			d.acquire(door, "first") // The review of the right is another one.
			d.ask(door, "alice", ask{verb: "acquire", key: "second"}).want(http.StatusTooManyRequests)
			d.users.asked.Store(0)
			d.locks.Calls()
			answers, late := make(chan reply, begun), make(chan reply, refused+1)
			call := func(into chan<- reply, key string) {
				go func() { into <- d.ask(door, "alice", ask{verb: "acquire", key: key, padding: padding}) }()
				synctest.Wait()
			}
			for number := range begun { // Each has its turn within 5 s, a second after the other.
				call(answers, fmt.Sprint("begun-", number))
			}
			for number := range refused {
				call(late, fmt.Sprint("late-", number))
			}
			taken := d.Limiter().BodyBytes()
			call(late, "one-more") // There is no room for its body.
			// The REST door lets go of a body before it is held back.
			if got := d.Limiter().BodyBytes(); got != taken || door == "forrst" && taken < (begun+refused)*padding {
				t.Errorf("%d bytes are counted while the calls are held back, and %d beside a body without room", taken, got)
			}
			for second := range 5 {
				synctest.Wait()
				if got := len(answers) + int(d.users.asked.Load()); got != 2*min(second, begun) || len(late) > 0 {
					t.Fatalf("after %d s %d were begun, %d reviewed and %d refused", second, len(answers), d.users.asked.Load(), len(late))
				}
				d.clock.Step(time.Second)
			}
			for range begun {
				if got := <-answers; got.status/100 != 2 {
					t.Errorf("begun in turn: %s", got.body)
				}
			}
			for range cap(late) {
				(<-late).want(http.StatusTooManyRequests)
			}
			if calls, left := len(d.locks.Calls()), d.Limiter().BodyBytes(); calls != begun || d.users.asked.Load() != begun || left != 0 {
				t.Errorf("%d requests for locks and %d reviews, want those of the calls that were begun; %d bytes are still counted", calls, d.users.asked.Load(), left)
			}
		})
	})
}

// A call that waits for a lock waits for its turn as well, and costs nothing more.
func TestACallThatWaitsWaitsForItsTurn(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoors(t, withLimits(limits.Limits{RatePerCaller: 1}))
			d.acquire(door, "first") // The review of the right is another one.
			d.locks.Calls()
			waits := d.begin(door, "alice", ask{verb: "acquire", key: "k", wait: "10"})
			synctest.Wait()
			d.wantNothingAsked()
			d.clock.Step(time.Second)
			if got := <-waits; got.status/100 != 2 {
				t.Error(got.body)
			}
			if calls := d.locks.Calls(); len(calls) != 1 || calls[0].Request.Wait != 9*time.Second {
				t.Errorf("it asked for %+v, want the rest of the wait", calls)
			}
		})
	})
}

func TestACallThatWaitsKeepsNoRoomForItsBody(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoors(t)
			release := d.hold("held")
			waits := d.begin(door, "alice", ask{verb: "acquire", key: "held", wait: "30", padding: 7000})
			synctest.Wait()
			if taken := d.Limiter().BodyBytes(); taken != 0 {
				t.Errorf("%d bytes are counted while it waits", taken)
			}
			release()
			<-waits
		})
	})
}

// A caller can take long to read an answer, and each is in memory as a whole.
func TestListsTakeRoomUntilTheyAreSent(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t, withLimits(limits.Limits{BodyBytes: 10_000}))
		d.hold("k")
		var whileSent int64
		d.ServeHTTP(&writing{httptest.NewRecorder(), func() { whileSent = d.Limiter().BodyBytes() }}, d.request(t.Context(), door, "alice", ask{verb: "list"}))
		if left := d.Limiter().BodyBytes(); whileSent < 300 || left != 0 {
			t.Errorf("%d bytes while the answer is sent, %d after that", whileSent, left)
		}
		for number := range 60 {
			d.hold(fmt.Sprint("k", number))
		}
		d.ask(door, "alice", ask{verb: "list"}).want(http.StatusServiceUnavailable)
	})
}

// A caller for whom there is no place in line is told which bound is reached, and for a lock which place it would have had.
func TestACallerIsToldThatTheLineIsFull(t *testing.T) {
	for bound, told := range map[lock.LineBound]string{
		lock.LinePerLock:      "The place in line would be 8, and at most 7 callers may wait for one lock",
		lock.LinePerNamespace: "7 callers wait for locks of this namespace, which is as many as may",
		lock.LinePerHolder:    "7 calls of the caller wait for locks, which is as many as may",
	} {
		atEachDoor(t, func(t *testing.T, door string) {
			d := openDoors(t)
			d.locks.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error {
				return fmt.Errorf("wait at another replica: %w", &lock.LineFullError{Bound: bound, Waiting: 7})
			}})
			for _, wait := range []string{"", "30"} {
				if got := d.ask(door, "alice", ask{verb: "acquire", key: "k", wait: wait}).want(http.StatusTooManyRequests); !strings.Contains(got.body, `"`+told+`"`) {
					t.Errorf("told %s, want %s", got.body, told)
				}
			}
		})
	}
}

func TestAPriorityAboveZeroNeedsARight(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		for priority, isAllowed := range map[string]bool{"1": false, "2147483647": false, "0": true, "null": true, "-1": true, "-2147483648": true} {
			d := openDoors(t)
			d.users.deny, d.users.allow = set("alice prioritize"), set("alice prioritize mine")
			got := d.ask(door, "alice", ask{verb: "acquire", key: "k", members: `"priority":` + priority})
			if !isAllowed {
				got.want(http.StatusForbidden)
			}
			if isTried := len(d.locks.Calls()) > 0; isTried != isAllowed {
				t.Errorf("priority %s: tried: %t, %s", priority, isTried, got.body)
			}
			if got := d.ask(door, "alice", ask{verb: "acquire", key: "mine", members: `"priority":` + priority}); got.status/100 != 2 {
				t.Errorf("priority %s with the right: %s", priority, got.body)
			}
		}
	})
}

// What it knows proves a lock only together with the name, and the UID where there is one.
func TestATokenNeedsTheIdentityOfItsHolder(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t)
		d.users.uid = "1"
		token := d.acquire(door, "k")
		wrong := func(who, uid string) {
			t.Helper()
			d.users.uid = uid
			for _, verb := range []string{"renew", "release"} {
				if got := d.ask(door, who, ask{verb: verb, key: "k", token: token}); got.status != http.StatusForbidden || !strings.Contains(got.body, map[string]string{"rest": "wrong-lock-token", "forrst": "LOCK_OWNERSHIP_MISMATCH"}[door]) {
					t.Errorf("%s by %s with the UID %q: status %d: %s", verb, who, uid, got.status, got.body)
				}
			}
			if got := d.ask(door, who, ask{verb: "status", key: "k"}).want(http.StatusOK); strings.Contains(got.body, "owner\":") {
				t.Errorf("%s is shown the owner token: %s", who, got.body)
			}
		}
		wrong("bob", "1")
		wrong("bob", "")
		wrong("alice", "2")                     // An account that was created again.
		for _, uid := range []string{"1", ""} { // A user without a UID counts by its name.
			d.users.uid = uid
			d.ask(door, "alice", ask{verb: "renew", key: "k", token: token}).want(http.StatusOK)
		}
	})
}

// What has failed inside is logged and not told.
func TestNothingIsToldOfWhatFails(t *testing.T) {
	const cause = "the secret cause"
	for name, test := range map[string]struct {
		fail   func() error
		status int
	}{
		"the API server":    {func() error { return fmt.Errorf("%s: %w", cause, lock.ErrUnavailable) }, http.StatusServiceUnavailable},
		"what nobody knows": {func() error { return errors.New(cause) }, http.StatusInternalServerError},
		"a panic":           {func() error { panic(cause) }, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			atEachDoor(t, func(t *testing.T, door string) {
				d := openDoors(t)
				token := d.acquire(door, "k")
				d.locks.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return test.fail() }})
				for _, each := range ofOneKey {
					each.token = token
					d.log.Reset()
					if got := d.ask(door, "alice", each).want(test.status); strings.Contains(got.body, "secret") || !strings.Contains(d.log.String(), cause) {
						t.Errorf("%s: told %s, logged %s", each.verb, got.body, &d.log)
					}
				}
			})
		})
	}
}

func TestACallerWhoseTokenCannotBeReviewedMayTryAgainAlsoDuringAStop(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t)
		d.users.failing = errors.New("the secret cause")
		stopped, stop := context.WithCancelCause(t.Context())
		stop(server.ErrStopped)
		for _, ctx := range []context.Context{t.Context(), stopped} {
			if got := d.send(door, d.request(ctx, door, "alice", ask{verb: "status", key: "k"})).want(http.StatusServiceUnavailable); strings.Contains(got.body, "secret") {
				t.Errorf("told %s", got.body)
			}
		}
		if !strings.Contains(d.log.String(), "the secret cause") {
			t.Errorf("logged %s", &d.log)
		}
	})
}

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t)
		for header, value := range map[string]string{"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"} {
			request := d.request(t.Context(), door, "alice", ask{verb: "acquire", key: "k"})
			request.Header.Set(header, value)
			if got := d.send(door, request); got.status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", header, got.status, got.body)
			}
		}
		d.wantNothingAsked()
		request := d.request(t.Context(), door, "alice", ask{verb: "acquire", key: "k"})
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		if got := d.send(door, request); got.status/100 != 2 {
			t.Errorf("the same origin: %s", got.body)
		}
	})
}

func TestAClientThatLeavesLeavesTheQueue(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoors(t)
			release := d.hold("held")
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan reply)
			go func() {
				ended <- d.send(door, d.request(ctx, door, "alice", ask{verb: "acquire", key: "held", wait: "30"}))
			}()
			synctest.Wait()
			if waiting := d.locks.Waiting("payments", "lock:held"); waiting != 1 {
				t.Errorf("%d callers wait", waiting)
			}
			leave()
			<-ended
			if waiting := d.locks.Waiting("payments", "lock:held"); waiting != 0 {
				t.Errorf("%d callers wait on", waiting)
			}
			release()
			if left := d.locks.All(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	})
}

func TestAnAcquireWhoseClientHasGoneLeaksNoLock(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		for _, wait := range []string{"", "30"} {
			d := openDoors(t)
			ctx, leave := context.WithCancel(t.Context())
			d.locks.SetHooks(locktest.Hooks{
				After: func(_ context.Context, call locktest.Call) error {
					if call.Verb == locktest.Acquire {
						leave()
					}
					return nil
				},
				Before: func(ctx context.Context, call locktest.Call) error {
					if call.Verb == locktest.Release {
						return ctx.Err()
					}
					return nil
				},
			})
			d.send(door, d.request(ctx, door, "alice", ask{verb: "acquire", key: "k", wait: wait}))
			if verbs := d.locks.Calls(); len(d.locks.All()) > 0 || !slices.ContainsFunc(verbs, func(call locktest.Call) bool { return call.Verb == locktest.Acquire }) {
				t.Errorf("calls %+v, left: %v", verbs, d.locks.All())
			}
		}
	})
}

func TestInvalidTokensOfOneNetworkAreLimited(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t)
		post := func(address, credentials string) int {
			request := d.request(t.Context(), door, "", ask{verb: "status", key: "k"})
			request.RemoteAddr = address
			request.Header.Set("Authorization", credentials)
			return d.send(door, request).status
		}
		d.hold("k")
		if got := post("192.0.2.1:1", "Bearer token-of-alice"); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
		limited := 0
		for number := range 150 {
			if post("192.0.2.1:1", fmt.Sprintf("Bearer %d", number)) == http.StatusTooManyRequests {
				limited++
			}
		}
		if limited != 50 {
			t.Errorf("%d were limited", limited)
		}
		if got := post("192.0.2.1:1", "Bearer token-of-alice"); got != http.StatusOK {
			t.Errorf("who was known before got %d", got)
		}
		if got := post("192.0.2.2:1", "Bearer other"); got != http.StatusUnauthorized {
			t.Errorf("another network got %d", got)
		}
	})
}
