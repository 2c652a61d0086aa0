package forrst_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const cancelName = "urn:cline:forrst:ext:cancellation:fn:cancel"

func cancellable(options string) string {
	return `{"urn":"urn:cline:forrst:ext:cancellation","options":` + options + `}`
}

func cancelCall(token string) string {
	return envelopeWith(cancelName, arguments(`"token":"`+token+`"`), "")
}

// postAside posts a call that takes its time.
func (f *fixture) postAside(body string) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- f.post(body) }()
	return answers
}

func TestCancelReachesWaitingCalls(t *testing.T) {
	for name, request := range map[string]string{
		"extension": envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`,"block":{"value":50}}`)+","+cancellable(`{"token":"t-1"}`)),
		"function":  envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+`,"block":{"value":50}`), cancellable(`{"token":"t-1"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.hold("k", "alice", time.Hour)
			began := f.letCallsWait()
			answers := f.postAside(request)
			<-began
			// To cancel again is fine.
			for range 2 {
				if got := f.post(cancelCall("t-1")); string(got.Result) != `{"cancelled":true,"token":"t-1"}` || got.status != 200 {
					t.Error(got.body)
				}
			}
			got := <-answers
			f.wantProblems(got, 499, "CANCELLED")
			if string(got.Errors[0].Details) != `{"token":"t-1"}` || got.entry("urn:cline:forrst:ext:cancellation") != "" {
				t.Error(got.body)
			}
			f.wantHeld("lock:k")
		})
	}
}

func TestCancelReachesRunningCallsAndEndsTheirLocks(t *testing.T) {
	began := make(chan struct{})
	f := newFixture(t, function("slow", func(ctx context.Context) (any, error) {
		close(began)
		<-ctx.Done()
		return true, nil
	}))
	answers := f.postAside(envelopeWith("slow", "", locked(`{"key":"k",`+ttl+`}`)+","+cancellable(`{"token":"t-1"}`)))
	<-began
	f.wantHeld("lock:slow:k")
	f.post(cancelCall("t-1"))
	f.wantProblems(<-answers, 499, "CANCELLED")
	f.wantHeld()
}

func TestCancelledTokenEndsLaterCallsForAWhile(t *testing.T) {
	began := make(chan struct{}, 1)
	f := newFixture(t, function("slow", func(ctx context.Context) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	answers := f.postAside(envelopeWith("slow", "", cancellable(`{"token":"t-1"}`)))
	<-began
	f.post(cancelCall("t-1"))
	<-answers
	request := envelopeWith(ping, "", locked(`{"key":"k",`+ttl+`}`)+","+cancellable(`{"token":"t-1"}`))
	f.wantProblems(f.post(request), 499, "CANCELLED")
	if calls := f.locks.Calls(); len(calls) > 0 {
		t.Errorf("locks were asked for: %v", calls)
	}
	f.clock.SetTime(f.clock.Now().Add(5 * time.Minute))
	if got := f.post(request); got.status != 200 {
		t.Error(got.body)
	}
	f.wantProblems(f.post(cancelCall("t-1")), 404, "CANCELLATION_TOKEN_UNKNOWN")
}

func TestCancelOfWhatDoesNotRun(t *testing.T) {
	f := newFixture(t)
	f.post(envelopeWith(ping, "", cancellable(`{"token":"over"}`)))
	for _, token := range []string{"over", "never"} {
		got := f.post(cancelCall(token))
		f.wantProblems(got, 404, "CANCELLATION_TOKEN_UNKNOWN")
		if string(got.Errors[0].Details) != `{"token":"`+token+`"}` {
			t.Error(got.body)
		}
	}
}

func TestCancelAfterTheFunctionIsTooLate(t *testing.T) {
	f := newFixture(t)
	releasing, goOn := make(chan struct{}), make(chan struct{})
	f.before[locktest.Release] = func(context.Context) error {
		close(releasing)
		<-goOn
		return nil
	}
	answers := f.postAside(envelopeWith(ping, "", locked(`{"key":"k",`+ttl+`}`)+","+cancellable(`{"token":"t-1"}`)))
	<-releasing
	got := f.post(cancelCall("t-1"))
	close(goOn)
	f.wantProblems(got, 409, "CANCELLATION_TOO_LATE")
	if string(got.Errors[0].Details) != `{"token":"t-1"}` {
		t.Error(got.body)
	}
	if got := <-answers; got.status != 200 {
		t.Error(got.body)
	}
}

func TestACallerCannotCancelCallsOfOtherCallers(t *testing.T) {
	began := make(chan struct{})
	caller := "ann"
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = identified(func(*http.Request) string { return caller })
	}, function("slow", func(ctx context.Context) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	answers := f.postAside(envelopeWith("slow", "", cancellable(`{"token":"t-1"}`)))
	<-began
	caller = "bob"
	f.wantProblems(f.post(cancelCall("t-1")), 404, "CANCELLATION_TOKEN_UNKNOWN")
	caller = "ann"
	if got := f.post(cancelCall("t-1")); got.status != 200 {
		t.Error(got.body)
	}
	f.wantProblems(<-answers, 499, "CANCELLED")
}

func TestOneTokenCanHaveSeveralCalls(t *testing.T) {
	began := make(chan struct{})
	f := newFixture(t, function("slow", func(ctx context.Context) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	body := envelopeWith("slow", "", cancellable(`{"token":"t-1"}`))
	first, second := f.postAside(body), f.postAside(body)
	<-began
	<-began
	f.post(cancelCall("t-1"))
	f.wantProblems(<-first, 499, "CANCELLED")
	f.wantProblems(<-second, 499, "CANCELLED")
}

func TestTokensThatAreNone(t *testing.T) {
	f := newFixture(t)
	for _, token := range []string{``, `"token":null`, `"token":""`, `"token":7`, `"token":"a b"`, `"token":"` + tooLong + `"`} {
		f.wantProblems(f.post(envelopeWith(ping, "", cancellable(`{`+token+`}`))), 400, "INVALID_ARGUMENTS /extensions/0/options/token")
		f.wantProblems(f.post(envelopeWith(cancelName, arguments(token), "")), 400, "INVALID_ARGUMENTS /call/arguments/token")
	}
	f.wantProblems(f.post(envelopeWith(cancelName, arguments(`"token":"t"`), locked(`{"key":"k",`+ttl+`}`))), 400, "EXTENSION_NOT_APPLICABLE /extensions/0")
}

// tooLong is a token of 101 characters.
const tooLong = "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhiiiiiiiiiijjjjjjjjjjk"
