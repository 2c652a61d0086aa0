package forrst_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// letCallsWait makes calls wait for held locks. The channel gets a value for each wait.
func (f *fixture) letCallsWait() <-chan struct{} {
	began := make(chan struct{}, 100)
	f.joined = func(context.Context) error {
		began <- struct{}{}
		return nil
	}
	return began
}

// blocking are calls that wait five seconds for the global lock "k".
var blocking = map[string]string{
	"extension": envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`,"block":{"value":5},"auto_release":false}`)),
	"function":  envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+`,"block":{"value":5}`), ""),
}

func TestBlockIsHowLongToWait(t *testing.T) {
	for block, want := range map[string]time.Duration{
		`null`: 0, `{"value":0}`: 0, `{"value":5,"unit":"second"}`: 5 * time.Second,
		`{"value":60}`: time.Minute, `{"value":0.2,"unit":"millisecond"}`: time.Millisecond,
	} {
		f := newFixture(t)
		f.post(envelopeWith(ping, "", locked(`{"key":"k",`+ttl+`,"block":`+block+`}`)))
		f.post(envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+`,"block":`+block), ""))
		if requests := f.requests(); len(requests) != 2 || requests[0].Wait != want || requests[1].Wait != want {
			t.Errorf("block %s: %+v, want a wait of %s", block, requests, want)
		}
	}
}

func TestBlockAboveTheMaximumNamesTheMaximum(t *testing.T) {
	for maximum, want := range map[time.Duration]string{
		0:           "value must be at most 60 seconds",
		time.Second: "value must be at most 1 seconds",
	} {
		f := newFixtureWith(t, func(config *testfacade.Settings) { config.MaxBlock = maximum })
		for _, test := range []struct{ body, pointer string }{
			{envelopeWith(ping, "", locked(`{"key":"k",`+ttl+`,"block":{"value":60.001}}`)), "/extensions/0/options/block/value"},
			{envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":60.001}`), ""), "/call/arguments/block/value"},
		} {
			got := f.post(test.body)
			f.wantProblems(got, 400, "INVALID_ARGUMENTS "+test.pointer)
			if got.Errors[0].Message != want || !strings.Contains(string(got.Errors[0].Details), `{"max":{"value":`) {
				t.Errorf("message %q, want %q; details %s", got.Errors[0].Message, want, got.Errors[0].Details)
			}
		}
		if len(f.locks.Calls()) > 0 {
			t.Error("a lock was tried")
		}
	}
}

// Who gave a time to wait is told how long that was, in the words of the request.
func TestWaitThatIsOver(t *testing.T) {
	for block, message := range map[string]string{
		`{"value":0,"unit":"second"}`:       "Lock acquisition timed out after 0 seconds",
		`{"value":1.50,"unit":"second"}`:    "Lock acquisition timed out after 1.50 seconds",
		`{"value":20,"unit":"millisecond"}`: "Lock acquisition timed out after 20 milliseconds",
		`{"value":"2"}`:                     "Lock acquisition timed out after 2 seconds",
		`{"unit":"minute","value":1e0}`:     "Lock acquisition timed out after 1e0 minutes",
	} {
		f := newFixture(t)
		f.hold("k", "secret-owner", time.Minute)
		got := f.post(envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`,"block":`+block+`}`)))
		f.wantProblems(got, 423, "LOCK_TIMEOUT")
		if want := `{"key":"k","scope":"global","full_key":"lock:k","waited":` + block + `}`; string(got.Errors[0].Details) != want || got.Errors[0].Message != message {
			t.Errorf("message %q, want %q; details %s, want %s", got.Errors[0].Message, message, got.Errors[0].Details, want)
		}
		if want := `{"key":"k","acquired":false}`; len(got.Extensions) != 1 || string(got.Extensions[0].Data) != want || got.fencing != 0 {
			t.Errorf("entries %v, want %s", got.Extensions, want)
		}
		f.wantHeld("lock:k")
	}
}

func TestBlockedCallGetsTheLockWhenItIsReleased(t *testing.T) {
	for name, body := range blocking {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.hold("k", "first", time.Minute)
			began := f.letCallsWait()
			answered := make(chan answer, 1)
			go func() { answered <- f.post(body) }()
			<-began
			// What the lock lives counts from when it was acquired.
			f.clock.SetTime(f.clock.Now().Add(3 * time.Second))
			if err := f.locks.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "first"}); err != nil {
				t.Error(err)
			}
			got := <-answered
			if got.status != 200 || got.fencing != 2 || !strings.Contains(got.body, `"expires_at":"2024-03-15T10:30:33Z"`) {
				t.Errorf("status %d, %s", got.status, got.body)
			}
			f.wantHeld("lock:k")
		})
	}
}

// fencing is the last entry, behind the one of the extension that was asked for.
func TestGrantsComeWithAFencingToken(t *testing.T) {
	f := newFixture(t, function("f", result(`1`)))
	for _, test := range []struct{ body, want string }{
		{envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`)), `{"token":1}`},
		{envelopeWith(wire.Acquire, arguments(`"key":"k"`), ""), `{"token":3}`}, // The release is a write, too.
	} {
		got := f.post(test.body)
		var response envelope.Response
		if err := json.Unmarshal([]byte(got.body), &response); err != nil {
			t.Fatal(err)
		}
		if last := response.Extensions[len(response.Extensions)-1]; last.URN != "urn:k8s:forrst:ext:fencing" || string(last.Data) != test.want {
			t.Errorf("the last entry is %s %s, want %s", last.URN, last.Data, test.want)
		}
	}
}

func TestGrantWithoutATokenIsLogged(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Locks = &instantLocks{granted: grantedWithoutVersion(config.Clock)}
	})
	got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k"`), ""))
	if got.status != 200 || got.fencing != 0 || !strings.Contains(f.log.String(), "fencing token") {
		t.Errorf("status %d, %s, logged %s", got.status, got.body, f.log)
	}
}

func TestOnlyTheNamespaceOfTheFacadeIsServed(t *testing.T) {
	f := newFixture(t)
	post := func(body string, namespaces ...string) answer {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(body))
		request.Header["Forrst-Namespace"] = namespaces
		return f.serve(request)
	}
	for name, body := range blocking {
		for _, namespaces := range [][]string{{"other"}, {""}, {"Default"}, {"default", "other"}} {
			got := post(body, namespaces...)
			f.wantProblems(got, 400, "INVALID_ARGUMENTS")
			if calls := f.locks.Calls(); !strings.Contains(got.Errors[0].Message, `"default"`) || len(calls) > 0 {
				t.Errorf("%s: %s, tried %v", name, got.body, calls)
			}
		}
	}
	if got := post(blocking["function"], namespace); got.status != 200 {
		t.Error(got.body)
	}
}
