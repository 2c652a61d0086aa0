package rest_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	acquisitions = "/v1/namespaces/payments/acquisitions"
	both         = `{"keys":["b","a"],"ttl_seconds":60}`
	bothWaiting  = `{"keys":["b","a"],"ttl_seconds":60,"wait_seconds":30}`
	ofBoth       = acquisitions + "?key=a&key=b"
	ofA          = "/v1/namespaces/payments/locks/a"
	ofB          = "/v1/namespaces/payments/locks/b"
)

func (a answer) set() wire.Set { a.t.Helper(); return decode[wire.Set](a) }

// steps are the calls of the backend since the last time, with their keys and waits.
func (f *fixture) steps() []string {
	steps := []string{}
	for _, call := range f.locks.Calls() {
		step := fmt.Sprint(call.Verb, " ", call.Key.Bare())
		if call.Request.Wait > 0 {
			step += fmt.Sprint(" within ", call.Request.Wait)
		}
		steps = append(steps, step)
	}
	return steps
}

func (f *fixture) wantSteps(want ...string) {
	f.t.Helper()
	got := f.steps()
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(want, got) {
		f.t.Errorf("steps %q, want %q", got, want)
	}
}

// inOrder checks steps that are made one after the other.
func (f *fixture) inOrder(want ...string) {
	f.t.Helper()
	if diff := gocmp.Diff(want, f.steps()); diff != "" {
		f.t.Errorf("(-want +got):\n%s", diff)
	}
}

func (f *fixture) wantLeft(want ...string) {
	f.t.Helper()
	got := f.left()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		f.t.Errorf("locks of %q, want those of %q", got, want)
	}
}

func TestSeveralLocks(t *testing.T) {
	f := newFixture(t)
	created := f.do(http.MethodPost, acquisitions, both).want(http.StatusCreated)
	f.inOrder("acquire a", "acquire b", "get a")
	set := created.set()
	if len(set.Locks) != 2 || set.Locks[0].Key != "a" || set.Locks[1].Key != "b" || *set.Locks[1].FencingToken != set.FencingToken ||
		*set.Locks[0].FencingToken >= set.FencingToken || set.ExpiresAt != set.Locks[0].ExpiresAt {
		t.Errorf("got %+v", set)
	}
	if location := created.header.Get("Location"); location != ofBoth {
		t.Errorf("they are at %s", location)
	}
	f.clock.Step(30 * time.Second)
	// The order of the keys does not matter.
	renewed := f.do(http.MethodPut, acquisitions+"?key=b&key=a", `{"ttl_seconds":120}`, "X-Lock-Token", set.LockToken).want(http.StatusOK).set()
	if renewed.LockToken != "" || renewed.FencingToken != set.FencingToken || renewed.ExpiresAt != "2026-03-15T10:32:30.000000Z" {
		t.Errorf("got %+v", renewed)
	}
	f.wantSteps("renew a", "renew b")
	f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", set.LockToken).want(http.StatusNoContent)
	f.wantSteps("release a", "release b")
	f.wantLeft()
	// One that has ended is told.
	f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", set.LockToken).want(http.StatusGone, "lock-ended")
	f.do(http.MethodPut, ofBoth, ofSixty, "X-Lock-Token", set.LockToken).want(http.StatusGone, "lock-ended")
}

func TestSeveralLocksOfAFunction(t *testing.T) {
	f := newFixture(t)
	created := f.do(http.MethodPost, acquisitions, `{"keys":["a","b/ü"],"function":"close","ttl_seconds":60}`).want(http.StatusCreated)
	f.acquire(ofA, ofSixty) // It contends with no key outside of the function.
	f.do(http.MethodDelete, created.header.Get("Location"), "", "X-Lock-Token", created.set().LockToken).want(http.StatusNoContent)
	f.wantLeft("a")
}

func TestIfOneOfSeveralIsHeldNoneIs(t *testing.T) {
	f := newFixture(t)
	f.acquire(ofB, ofSixty, "User", "bob")
	f.locks.Calls()
	refused := f.do(http.MethodPost, acquisitions, both).want(http.StatusLocked, "lock-held")
	if problem := refused.problem(); problem.Key != "b" || problem.Holder != "bob" || problem.Detail != "b: Another caller holds the lock" {
		t.Errorf("got %s", refused.body)
	}
	f.inOrder("acquire a", "acquire b", "release a")
	f.wantLeft("b")
}

// beginSet sends a request that waits in a goroutine of its own, and returns when it waits for the key.
func (f *fixture) beginSet(ctx context.Context, key, body string, headers ...string) <-chan answer {
	f.t.Helper()
	answered := make(chan answer, 1)
	go func() {
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, acquisitions, strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		for pair := range slices.Chunk(headers, 2) {
			request.Header.Set(pair[0], pair[1])
		}
		answered <- f.send(request, body)
	}()
	f.wantWaiting(key)
	return answered
}

// wantWaiting checks that a call waits for the lock of the key.
func (f *fixture) wantWaiting(key string) {
	f.t.Helper()
	synctest.Wait()
	if waiting := f.locks.Waiting("payments", v1alpha1.FullKey("lock:"+key)); waiting != 1 {
		f.t.Fatalf("%d calls wait for %s", waiting, key)
	}
}

// end releases a lock.
func (f *fixture) end(path, token string) {
	f.t.Helper()
	f.do(http.MethodDelete, path, "", "X-Lock-Token", token).want(http.StatusNoContent)
}

func TestNoLockIsKeptBesideAWaitForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		held := f.acquire(ofB, ofSixty, "User", "bob")
		f.locks.Calls()
		waits := f.beginSet(t.Context(), "b", bothWaiting)
		f.wantLeft("b")
		f.clock.Step(10 * time.Second)
		f.do(http.MethodDelete, ofB, "", "X-Lock-Token", held, "User", "bob").want(http.StatusNoContent)
		(<-waits).want(http.StatusCreated)
		f.inOrder("acquire a", "acquire b", "release a", "acquire b within 30s", "release b", "acquire a", "get b")
	})
}

func TestTheWaitForSeveralLocksIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first, second := f.acquire(ofA, ofSixty), f.acquire(ofB, ofSixty)
		f.locks.Calls()
		waits := f.beginSet(t.Context(), "a", bothWaiting, "User", "bob")
		f.clock.Step(20 * time.Second)
		f.end(ofA, first)
		f.wantWaiting("b")
		f.clock.Step(9 * time.Second)
		synctest.Wait()
		f.inOrder("acquire a", "acquire a within 30s", "release a", "acquire b", "release a", "acquire b within 10s")
		f.clock.Step(time.Second)
		if problem := (<-waits).want(http.StatusLocked, "lock-held").problem(); problem.Key != "b" || problem.Detail != "b: Another caller held the lock for all of wait_seconds" {
			t.Errorf("got %+v", problem)
		}
		f.wantLeft("b")
		f.end(ofB, second)
	})
}

// waitsInOrder returns a request whose tries have failed three times: it keeps a while it waits for b, which is held. The
// function releases b.
func (f *fixture) waitsInOrder(ctx context.Context, body string, headers ...string) (answered <-chan answer, endB func()) {
	f.t.Helper()
	a, b := f.acquire(ofA, ofSixty), f.acquire(ofB, ofSixty)
	answered = f.beginSet(ctx, "a", body, headers...)
	f.end(ofA, a)
	f.wantWaiting("b")
	a = f.acquire(ofA, ofSixty)
	f.end(ofB, b)
	f.wantWaiting("a")
	b = f.acquire(ofB, `{"ttl_seconds":600}`)
	f.end(ofA, a)
	f.wantWaiting("b")
	f.locks.Calls()
	return answered, func() { f.end(ofB, b) }
}

const shortBoth = `{"keys":["a","b"],"ttl_seconds":6,"wait_seconds":30}`

func TestWhatIsKeptWhileASetWaitsIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		answered, endB := f.waitsInOrder(t.Context(), shortBoth, "User", "bob")
		f.wantLeft("a", "b")
		for range 5 {
			f.clock.Step(2 * time.Second)
			synctest.Wait()
			f.inOrder("renew a")
		}
		endB()
		set := (<-answered).want(http.StatusCreated).set()
		f.inOrder("release b", "get a")
		f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", set.LockToken, "User", "bob").want(http.StatusNoContent)
		f.wantLeft()
	})
}

func TestAStrictSetKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		answered, endB := f.waitsInOrder(t.Context(), `{"keys":["a","b"],"ttl_seconds":6,"wait_seconds":30,"together":"strict"}`, "User", "bob")
		f.wantLeft("b")
		endB()
		(<-answered).want(http.StatusCreated)
		f.wantLeft("a", "b")
	})
}

func TestALossWhileASetWaitsEndsIt(t *testing.T) {
	for title, end := range map[string]func(*fixture){
		"by force": func(f *fixture) {
			f.do(http.MethodDelete, ofA+"?force=true&reason=r", "").want(http.StatusNoContent)
			f.clock.Step(2 * time.Second)
		},
		"by another holder": func(f *fixture) {
			f.do(http.MethodDelete, ofA+"?force=true&reason=r", "").want(http.StatusNoContent)
			f.acquire(ofA, ofSixty)
			f.clock.Step(2 * time.Second)
		},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				answered, endB := f.waitsInOrder(t.Context(), shortBoth, "User", "bob")
				end(f)
				if problem := (<-answered).want(http.StatusGone, "lock-ended").problem(); problem.Key != "a" {
					t.Errorf("got %+v", problem)
				}
				endB()
				if slices.Contains(f.left(), "b") {
					t.Error("b is left")
				}
			})
		})
	}
}

// A lock that ends before the last one is granted is found by the last look.
func TestALossBeforeTheLastGrant(t *testing.T) {
	f := newFixture(t)
	f.locks.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
		if call.Verb == locktest.Acquire && call.Key == "lock:b" {
			return f.locks.ForceRelease(ctx, "payments", "lock:a", "r")
		}
		return nil
	}})
	if problem := f.do(http.MethodPost, acquisitions, both).want(http.StatusGone, "lock-ended").problem(); problem.Key != "a" {
		t.Errorf("got %+v", problem)
	}
	f.wantLeft()
}

func TestAFailureBetweenTwoLocksLeavesNone(t *testing.T) {
	f := newFixture(t)
	f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Acquire && call.Key == "lock:b" {
			return lock.ErrUnavailable
		}
		return nil
	}})
	f.do(http.MethodPost, acquisitions, both).want(http.StatusServiceUnavailable, "unavailable")
	f.wantLeft()
	// What may be left is told, whatever has failed before.
	f.locks.SetHooks(locktest.Hooks{})
	f.holdDirectly("b", "o", "bob", time.Minute)
	f.locks.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, lock.ErrUnavailable)})
	f.do(http.MethodPost, acquisitions, both).want(http.StatusServiceUnavailable, "unavailable")
	f.wantLeft("a", "b")
}

func TestACallerThatLeavesHoldsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, leave := context.WithCancel(t.Context())
		answered, endB := f.waitsInOrder(ctx, shortBoth)
		leave()
		<-answered
		f.wantLeft("b")
		endB()
		f.wantLeft()
	})
}

func TestASetThatCannotBeToldIsTakenBack(t *testing.T) {
	for name, writer := range map[string]http.ResponseWriter{"write": brokenWriter{httptest.NewRecorder()}, "flush": brokenFlush{httptest.NewRecorder()}} {
		f := newFixture(t)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, acquisitions, strings.NewReader(both))
		request.Header.Set("Content-Type", "application/json")
		f.ServeHTTP(writer, request)
		if keys := f.left(); len(keys) > 0 {
			t.Errorf("%s: left: %q", name, keys)
		}
	}
}

func TestARepeatedSetIsTheSame(t *testing.T) {
	const again = "an-idempotency-key"
	for title, body := range map[string]string{"at once": both, "with a wait": bothWaiting} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t)
			first := f.do(http.MethodPost, acquisitions, body, "Idempotency-Key", again).want(http.StatusCreated).set()
			f.clock.Step(30 * time.Second)
			second := f.do(http.MethodPost, acquisitions, body, "Idempotency-Key", again).want(http.StatusCreated).set()
			if second.LockToken != first.LockToken || second.FencingToken != first.FencingToken || second.ExpiresAt != "2026-03-15T10:31:30.000000Z" {
				t.Errorf("first %+v, then %+v", first, second)
			}
			// Whatever else differs is another request.
			for _, other := range []string{`{"keys":["a"],"ttl_seconds":60}`, `{"keys":["a","b","c"],"ttl_seconds":60}`, `{"keys":["a","b"],"ttl_seconds":1}`} {
				f.do(http.MethodPost, acquisitions, other, "Idempotency-Key", again).want(http.StatusLocked, "lock-held")
			}
			f.do(http.MethodPost, ofA, ofSixty, "Idempotency-Key", again).want(http.StatusLocked, "lock-held")
			// A set of which one lock has ended is none.
			f.do(http.MethodDelete, ofA+"?force=true&reason=r", "").want(http.StatusNoContent)
			if title == "at once" {
				f.do(http.MethodPost, acquisitions, body, "Idempotency-Key", again).want(http.StatusLocked, "lock-held")
			}
			f.wantLeft("b")
			f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", first.LockToken).want(http.StatusGone, "lock-ended")
			f.wantLeft()
			// The token of the first does not prove the next.
			third := f.do(http.MethodPost, acquisitions, body, "Idempotency-Key", again).want(http.StatusCreated).set()
			f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", first.LockToken).want(http.StatusGone, "lock-ended")
			f.do(http.MethodPut, ofBoth, ofSixty, "X-Lock-Token", first.LockToken).want(http.StatusGone, "lock-ended")
			f.wantLeft("a", "b")
			f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", third.LockToken).want(http.StatusNoContent)
		})
	}
}

// A call whose caller has gone must not end the set that another call of the same request has found.
func TestASetThatWasFoundIsNotTakenBack(t *testing.T) {
	const again = "an-idempotency-key"
	f := newFixture(t)
	var found wire.Set
	writer := &onFlush{httptest.NewRecorder(), func() {
		f.clock.Step(time.Second)
		found = f.do(http.MethodPost, acquisitions, both, "Idempotency-Key", again).want(http.StatusCreated).set()
	}}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, acquisitions, strings.NewReader(both))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", again)
	f.ServeHTTP(writer, request)
	f.wantLeft("a", "b")
	f.do(http.MethodPut, ofBoth, ofSixty, "X-Lock-Token", found.LockToken).want(http.StatusOK)
}

// onFlush does something before it fails.
type onFlush struct {
	*httptest.ResponseRecorder
	do func()
}

func (w *onFlush) FlushError() error {
	w.do()
	return http.ErrHandlerTimeout
}

// A set that waits and one that was kept must not be taken for the whole by a call of the same request.
func TestARepeatedRequestFindsNoHalfOfASet(t *testing.T) {
	const again = "an-idempotency-key"
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		answered, endB := f.waitsInOrder(t.Context(), shortBoth, "User", "bob", "Idempotency-Key", again)
		f.do(http.MethodPost, acquisitions, `{"keys":["a","b"],"ttl_seconds":6}`, "User", "bob", "Idempotency-Key", again).want(http.StatusLocked, "lock-held")
		f.wantLeft("a", "b")
		endB()
		(<-answered).want(http.StatusCreated)
	})
}

func TestATokenOfASet(t *testing.T) {
	f := newFixture(t)
	set := f.do(http.MethodPost, acquisitions, both).want(http.StatusCreated).set()
	single := f.acquire("/v1/namespaces/payments/locks/c", ofSixty)
	for title, test := range map[string]struct {
		path, token, user string
		status            int
		problem           string
	}{
		"another caller's":    {ofBoth, set.LockToken, "bob", http.StatusForbidden, "wrong-lock-token"},
		"of one more lock":    {ofBoth + "&key=c", set.LockToken, "", http.StatusForbidden, "wrong-lock-token"},
		"of one lock less":    {acquisitions + "?key=a", set.LockToken, "", http.StatusForbidden, "wrong-lock-token"},
		"of a single lock":    {acquisitions + "?key=c", single, "", http.StatusForbidden, "wrong-lock-token"},
		"of a free lock":      {acquisitions + "?key=d", set.LockToken, "", http.StatusNotFound, "lock-not-found"},
		"for a single lock":   {ofA, set.LockToken, "", http.StatusForbidden, "wrong-lock-token"},
		"malformed":           {ofBoth, "locks_", "", http.StatusForbidden, "wrong-lock-token"},
		"missing":             {ofBoth, "", "", http.StatusBadRequest, "lock-token-required"},
		"without keys":        {acquisitions, set.LockToken, "", http.StatusBadRequest, "invalid-request"},
		"of a key twice":      {ofBoth + "&key=a", set.LockToken, "", http.StatusBadRequest, "invalid-request"},
		"of no function":      {ofBoth + "&function=", set.LockToken, "", http.StatusBadRequest, "invalid-request"},
		"of a wrong function": {ofBoth + "&function=a%0ab", set.LockToken, "", http.StatusBadRequest, "invalid-request"},
		"of another function": {ofBoth + "&function=f", set.LockToken, "", http.StatusNotFound, "lock-not-found"},
	} {
		t.Run(title, func(t *testing.T) {
			f.t = t
			headers := []string{"User", cmp.Or(test.user, "alice")}
			if test.token != "" {
				headers = append(headers, "X-Lock-Token", test.token)
			}
			f.do(http.MethodDelete, test.path, "", headers...).want(test.status, test.problem)
			f.do(http.MethodPut, test.path, `{"ttl_seconds":1}`, headers...).want(test.status, test.problem)
			f.wantLeft("a", "b", "c")
		})
	}
}

// Where one lock cannot be released, the others are all the same, and the error is about that one.
func TestAReleaseOfASetSkipsNone(t *testing.T) {
	f := newFixture(t)
	set := f.do(http.MethodPost, acquisitions, `{"keys":["a","b","c"],"ttl_seconds":60}`).want(http.StatusCreated).set()
	f.do(http.MethodDelete, ofA+"?force=true&reason=r", "").want(http.StatusNoContent)
	f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Key == "lock:b" {
			return lock.ErrUnavailable
		}
		return nil
	}})
	const path = ofBoth + "&key=c"
	if problem := f.do(http.MethodDelete, path, "", "X-Lock-Token", set.LockToken).want(http.StatusServiceUnavailable, "unavailable").problem(); problem.Key != "b" {
		t.Errorf("got %+v", problem)
	}
	f.wantLeft("b")
	f.locks.SetHooks(locktest.Hooks{})
	if problem := f.do(http.MethodDelete, path, "", "X-Lock-Token", set.LockToken).want(http.StatusGone, "lock-ended").problem(); problem.Key != "a" {
		t.Errorf("got %+v", problem)
	}
	f.wantLeft()
}

func TestMistakesInARequestForSeveralLocks(t *testing.T) {
	f := newFixture(t)
	var keys []string
	for number := range 17 {
		keys = append(keys, fmt.Sprintf(`"k%d"`, number))
	}
	long := strings.Repeat("ü", 256)
	for title, test := range map[string]struct{ body, field, detail string }{
		"no keys":             {`{"ttl_seconds":60}`, "keys", "must have at least one"},
		"an empty array":      {`{"keys":[],"ttl_seconds":60}`, "keys", "must have at least one"},
		"null":                {`{"keys":null,"ttl_seconds":60}`, "keys", "must have at least one"},
		"too many":            {`{"keys":[` + strings.Join(keys, ",") + `],"ttl_seconds":60}`, "keys", "must have at most 16 items"},
		"one twice":           {`{"keys":["a","b","a"],"ttl_seconds":60}`, "keys[2]", "must not be given twice"},
		"one twice in NFC":    {`{"keys":["u\u0308","\u00fc"],"ttl_seconds":60}`, "keys[1]", "must not be given twice"},
		"an invalid key":      {`{"keys":["a","b\u0000"],"ttl_seconds":60}`, "keys[1]", ""},
		"a number":            {`{"keys":["a",5],"ttl_seconds":60}`, "keys", "must be an array of strings"},
		"a string":            {`{"keys":"a","ttl_seconds":60}`, "keys", "must be an array of strings"},
		"keys beyond a path":  {`{"keys":["1` + long[2:] + `","2` + long[2:] + `","3` + long[2:] + `"],"ttl_seconds":60}`, "keys", "must take at most 4096 bytes in the path of the answer"},
		"another mode":        {`{"keys":["a"],"ttl_seconds":60,"together":"loose"}`, "together", `must be "strict", or absent`},
		"an empty mode":       {`{"keys":["a"],"ttl_seconds":60,"together":""}`, "together", `must be "strict", or absent`},
		"no ttl":              {`{"keys":["a"]}`, "ttl_seconds", ""},
		"a holder of no kind": {`{"keys":["a"],"ttl_seconds":60,"holder_ref":{"api_version":"v1","name":"p","uid":"u"}}`, "holder_ref.kind", ""},
		"an unknown member":   {`{"keys":["a"],"ttl_seconds":60,"key":"a"}`, "key", ""},
	} {
		t.Run(title, func(t *testing.T) {
			f.t = t
			refused := f.do(http.MethodPost, acquisitions, test.body).want(http.StatusBadRequest, "invalid-request").problem()
			if len(refused.Errors) != 1 || refused.Errors[0].Field != test.field || !strings.HasPrefix(refused.Errors[0].Detail, test.detail) || refused.Errors[0].In != "body" {
				t.Errorf("got %+v", refused.Errors)
			}
		})
	}
	f.t = t
	f.do(http.MethodPost, acquisitions, both, "X-Lock-Token", "locks_").want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodPost, acquisitions+"?key=a", both).want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodGet, acquisitions, "").want(http.StatusMethodNotAllowed)
	f.wantSteps()
}

// The caller needs the right to each of the locks, which it is told before anything is done.
func TestRightsToSeveralLocks(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Access = &callers{
			deny:  []string{"alice create", "carol prioritize"},
			allow: []string{"alice create a", "alice create b", "carol prioritize a"},
		}
	})
	set := f.do(http.MethodPost, acquisitions, both).want(http.StatusCreated).set()
	f.do(http.MethodPut, ofBoth, ofSixty, "X-Lock-Token", set.LockToken).want(http.StatusOK)
	f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", set.LockToken).want(http.StatusNoContent)
	f.locks.Calls()
	for key, refused := range map[string]answer{
		"c": f.do(http.MethodPost, acquisitions, `{"keys":["a","b","c"],"ttl_seconds":60}`),
		"0": f.do(http.MethodPost, acquisitions, `{"keys":["0","a"],"ttl_seconds":60}`),
		"d": f.do(http.MethodPut, ofBoth+"&key=d", ofSixty, "X-Lock-Token", set.LockToken),
		"1": f.do(http.MethodDelete, ofBoth+"&key=1", "", "X-Lock-Token", set.LockToken),
	} {
		if problem := refused.want(http.StatusForbidden, "forbidden").problem(); problem.Key != key {
			t.Errorf("got %+v, want one about %s", problem, key)
		}
	}
	refused := f.do(http.MethodPost, acquisitions, `{"keys":["a","b"],"ttl_seconds":60,"priority":1}`, "User", "carol").want(http.StatusForbidden, "forbidden")
	if right := refused.problem().Right; right == nil || right.Verb != "prioritize" {
		t.Errorf("got %s", refused.body)
	}
	f.wantSteps()
}

// A set has the place of its arrival in each queue.
func TestASetWaitsFromItsArrivalOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		a, b := f.acquire(ofA, ofSixty), f.acquire(ofB, ofSixty)
		arrived := f.clock.Now()
		waits := f.beginSet(t.Context(), "a", bothWaiting)
		f.locks.Calls()
		f.clock.Step(5 * time.Second)
		f.end(ofA, a)
		f.wantWaiting("b")
		var since []time.Time
		for _, call := range f.locks.Calls() {
			if call.Verb == locktest.Acquire {
				since = append(since, call.Request.Since)
			}
		}
		if len(since) != 2 || !since[0].Equal(arrived) || !since[1].Equal(arrived) {
			t.Errorf("it asks since %v, and came at %v", since, arrived)
		}
		f.end(ofB, b)
		(<-waits).want(http.StatusCreated)
	})
}

func TestTheObjectThatHoldsSeveralLocksIsLookedForOnce(t *testing.T) {
	counted := &countingHolders{}
	f := newFixture(t, func(s *testfacade.Settings) { s.Holders = counted })
	f.do(http.MethodPost, acquisitions, `{"keys":["a","b"],"ttl_seconds":60,"holder_ref":{"api_version":"v1","kind":"Pod","name":"p","uid":"u"}}`).want(http.StatusCreated)
	for _, held := range f.locks.All() {
		if held.Spec.HolderRef == nil {
			t.Errorf("%s has no holder", held.Name)
		}
	}
	if counted.asked != 1 {
		t.Errorf("looked %d times", counted.asked)
	}
}

type countingHolders struct{ asked int }

func (h *countingHolders) Check(context.Context, string, rules.ValidReference) error {
	h.asked++
	return nil
}

// A call of the same request that finds the locks while the first one is not answered yet may have told its caller of them.
func TestASetThatWasFoundBeforeItsAnswerIsLeft(t *testing.T) {
	const again = "an-idempotency-key"
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, leave := context.WithCancel(t.Context())
		answered, endB := f.waitsInOrder(ctx, shortBoth, "User", "bob", "Idempotency-Key", again)
		f.clock.Step(2 * time.Second)
		synctest.Wait() // It has renewed a.
		granted := make(chan struct{})
		f.locks.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire {
				f.locks.SetHooks(locktest.Hooks{})
				<-granted
			}
			return nil
		}})
		endB()
		synctest.Wait()
		found := f.do(http.MethodPost, acquisitions, `{"keys":["a","b"],"ttl_seconds":6}`, "User", "bob", "Idempotency-Key", again).want(http.StatusCreated).set()
		f.clock.Step(2 * time.Second)
		synctest.Wait() // It would renew a again.
		leave()
		close(granted)
		<-answered
		f.wantLeft("a", "b")
		f.do(http.MethodPut, ofBoth, ofSixty, "User", "bob", "X-Lock-Token", found.LockToken).want(http.StatusOK)
	})
}

// A set of which one lock ends while it is found may have been told to another caller, so what is left of it is told as unknown.
func TestASetThatEndsWhileItIsFound(t *testing.T) {
	const again = "an-idempotency-key"
	f := newFixture(t)
	f.do(http.MethodPost, acquisitions, both, "Idempotency-Key", again).want(http.StatusCreated)
	f.locks.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
		if call.Verb == locktest.Renew && call.Key == "lock:b" {
			return f.locks.ForceRelease(ctx, "payments", "lock:b", "r")
		}
		return nil
	}})
	if problem := f.do(http.MethodPost, acquisitions, both, "Idempotency-Key", again).want(http.StatusServiceUnavailable, "unavailable").problem(); problem.Key != "b" {
		t.Errorf("got %+v", problem)
	}
	f.wantLeft("a")
}

// All locks are read before the first is renewed: otherwise one that has been released could be followed by the grant of the next.
func TestASetIsReadBeforeItIsRenewed(t *testing.T) {
	const again = "an-idempotency-key"
	f := newFixture(t)
	f.do(http.MethodPost, acquisitions, both, "Idempotency-Key", again).want(http.StatusCreated)
	f.locks.Calls()
	f.do(http.MethodPost, acquisitions, bothWaiting, "Idempotency-Key", again).want(http.StatusCreated)
	f.inOrder("get a", "get b", "renew a", "renew b")
}

// Whatever keeps the service from releasing a lock, its caller is told that it may be left.
func TestALockThatCannotBeGivenBackIsTold(t *testing.T) {
	f := newFixture(t)
	f.holdDirectly("b", "o", "bob", time.Minute)
	f.locks.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, &lock.RefusedError{Reason: "no"})})
	if problem := f.do(http.MethodPost, acquisitions, both).want(http.StatusServiceUnavailable, "unavailable").problem(); problem.Key != "a" {
		t.Errorf("got %+v", problem)
	}
	f.wantLeft("a", "b")
}

// So it is if the look for the grants of another call of the request fails after that.
func TestALockThatCannotBeGivenBackIsToldWhateverIsFoundThen(t *testing.T) {
	f := newFixture(t)
	f.holdDirectly("b", "o", "bob", time.Minute)
	f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Release || call.Verb == locktest.Get {
			return &lock.RefusedError{Reason: "no"}
		}
		return nil
	}})
	f.do(http.MethodPost, acquisitions, both, "Idempotency-Key", "an-idempotency-key").want(http.StatusServiceUnavailable, "unavailable")
	f.wantLeft("a", "b")
}

func TestAPanicAtOneOfSeveralLocksIsAnInternalError(t *testing.T) {
	f := newFixture(t)
	set := f.do(http.MethodPost, acquisitions, both).want(http.StatusCreated).set()
	f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Key == "lock:a" {
			panic("a defect")
		}
		return nil
	}})
	f.do(http.MethodDelete, ofBoth, "", "X-Lock-Token", set.LockToken).want(http.StatusInternalServerError, "internal-error")
	f.wantLeft("a")
}

// Each lock counts at the rate of the caller.
func TestRenewalsOfASetArePaidFor(t *testing.T) {
	allowed := func(keys string, count int) (renewals int) {
		f := newFixture(t, func(s *testfacade.Settings) {
			s.Server.Limits, s.Server.Clock = limits.Limits{RatePerCaller: 6}, s.Clock
		})
		set := f.do(http.MethodPost, acquisitions, fmt.Sprintf(`{"keys":%s,"ttl_seconds":60}`, keys)).want(http.StatusCreated)
		f.locks.Calls()
		for f.do(http.MethodPut, set.header.Get("Location"), ofSixty, "X-Lock-Token", set.set().LockToken).status == http.StatusOK {
			renewals++
		}
		if calls := f.locks.Calls(); len(calls) != renewals*count {
			t.Errorf("%d renewals of %s made %d calls", renewals, keys, len(calls))
		}
		return renewals
	}
	if one, three := allowed(`["a"]`, 1), allowed(`["a","b","c"]`, 3); three != one/3 || three == 0 {
		t.Errorf("a caller may renew one lock %d times, and three %d times", one, three)
	}
}
