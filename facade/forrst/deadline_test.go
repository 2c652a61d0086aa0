package forrst_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func deadline(options string) string {
	return `{"urn":"urn:forrst:ext:deadline","options":` + options + `}`
}

// bubbled is a fixture whose clock is that of the bubble in which it is made.
func bubbled(tb testing.TB, functions ...forrst.Function) *fixture {
	tb.Helper()
	return newFixtureWith(tb, func(config *testfacade.Settings) { config.Clock = clock.RealClock{} }, functions...)
}

// Extension returns the data of the entry with the URN, or nil.
func (a *answer) Extension(urn string) json.RawMessage {
	for _, entry := range a.Extensions {
		if entry.URN == urn {
			return entry.Data
		}
	}
	return nil
}

// entry is [answer.Extension] as a text.
func (a *answer) entry(urn string) string { return string(a.Extension(urn)) }

func TestDeadlineInEveryForm(t *testing.T) {
	for options, specified := range map[string]string{
		`{"value":5,"unit":"second"}`:                                                       `{"value":5,"unit":"second"}`,
		`{"value":"5"}`:                                                                     `{"value":"5"}`,
		`{"unit":"second","value":5.0e0,"x":[]}`:                                            `{"unit":"second","value":5.0e0,"x":[]}`,
		`{"timeout":{"value":"5"}}`:                                                         `{"value":"5"}`,
		`{"timeout":{"value":5,"unit":"second"}}`:                                           `{"value":5,"unit":"second"}`,
		`{"value":"2024-03-15T10:30:05Z","unit":"iso8601"}`:                                 `{"value":"2024-03-15T10:30:05Z","unit":"iso8601"}`,
		`{"deadline":"2024-03-15T11:30:05+01:00"}`:                                          `"2024-03-15T11:30:05+01:00"`,
		`{"deadline":"2024-03-15T10:30:05.000Z","value":1e300}`:                             ``,
		`{"deadline":"2024-03-15T10:31:00Z","timeout":{"value":5000,"unit":"millisecond"}}`: `{"value":5000,"unit":"millisecond"}`,
	} {
		var f *fixture
		f = newFixture(t, function("slow", func(ctx context.Context) (any, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the function knows no deadline")
			}
			f.clock.SetTime(f.clock.Now().Add(1250 * time.Millisecond))
			return true, nil
		}))
		got := f.post(envelopeWith("slow", "", deadline(options)))
		if specified == "" {
			f.wantProblems(got, 400, "INVALID_ARGUMENTS /extensions/0/options/value")
			continue
		}
		want := `{"specified":` + specified + `,"elapsed":{"value":1250,"unit":"millisecond"},"remaining":{"value":3750,"unit":"millisecond"},"utilization":0.25}`
		if got.status != 200 || got.entry("urn:forrst:ext:deadline") != want {
			t.Errorf("%s: status %d, %s\nwant %s", options, got.status, got.body, want)
		}
	}
}

func TestDeadlinesThatAreNone(t *testing.T) {
	f := newFixture(t)
	for options, at := range map[string]string{
		`{}`: "/value", `[]`: "/value", `{"value":0}`: "/value", `{"value":-1}`: "/value", `{"value":5,"unit":"year"}`: "/unit",
		`{"value":5,"unit":"iso8601"}`: "/value", `{"unit":"iso8601"}`: "/value", `{"value":"2024-03-15 10:30:00","unit":"iso8601"}`: "/value",
		`{"value":"2024-03-15T10:30:05","unit":"iso8601"}`: "/value", `{"deadline":"soon"}`: "/deadline", `{"deadline":5}`: "/deadline",
		`{"timeout":5}`: "/timeout", `{"timeout":{}}`: "/timeout/value",
	} {
		got := f.post(envelopeWith(ping, "", deadline(options)))
		f.wantProblems(got, 400, "INVALID_ARGUMENTS /extensions/0/options"+at)
		if got.Extensions != nil {
			t.Errorf("%s: %s", options, got.body)
		}
	}
}

func TestDeadlineInThePastEndsTheCallBeforeALock(t *testing.T) {
	for _, past := range []string{`{"deadline":"2024-03-15T10:29:59Z"}`, `{"value":"0001-01-01T00:00:00Z","unit":"iso8601"}`, `{"deadline":"2024-03-15T10:30:00Z"}`} {
		f := newFixture(t, function("f", func(context.Context) (any, error) {
			t.Error("the function ran")
			return nil, nil
		}))
		// Extensions work in an order of their own, whatever that of the request.
		got := f.post(envelopeWith("f", "", locked(`{"key":"k",`+ttl+`,"block":{"value":5}}`)+","+deadline(past)))
		f.wantProblems(got, 504, "DEADLINE_EXCEEDED")
		if calls := f.locks.Calls(); len(calls) > 0 || len(got.Extensions) != 1 || !strings.Contains(got.entry("urn:forrst:ext:deadline"), `"remaining":{"value":0,"unit":"millisecond"},"utilization":1}`) {
			t.Errorf("%s: calls %v, %s", past, calls, got.body)
		}
		var details map[string]any
		if err := json.Unmarshal(got.Errors[0].Details, &details); err != nil || len(details) != 2 || details["deadline"] == nil || details["elapsed"] == nil {
			t.Errorf("details %s", got.Errors[0].Details)
		}
	}
}

func TestDeadlineEndsTheWaitForALock(t *testing.T) {
	for name, request := range map[string]string{
		"extension": envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`,"block":{"value":50}}`)+","+deadline(`{"value":3}`)),
		"function":  envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+`,"block":{"value":50}`), deadline(`{"value":3}`)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := bubbled(t)
				f.hold("k", "alice", time.Hour)
				f.letCallsWait()
				start := time.Now()
				got := f.post(request)
				f.wantProblems(got, 504, "DEADLINE_EXCEEDED")
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("it took %s", took)
				}
				if data := got.entry("urn:cline:forrst:ext:atomic-lock"); name == "extension" && data != `{"key":"k","acquired":false}` {
					t.Errorf("lock data %s", data)
				}
				want := `{"deadline":{"value":3},"elapsed":{"value":3000,"unit":"millisecond"}}`
				if string(got.Errors[0].Details) != want {
					t.Errorf("details %s", got.Errors[0].Details)
				}
			})
		})
	}
}

func TestDeadlineEndsTheFunctionAndThenTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = bubbled(t, function("slow", func(ctx context.Context) (any, error) {
			<-ctx.Done()
			f.wantHeld("lock:slow:k")
			// There is no late success.
			return true, nil
		}))
		got := f.post(envelopeWith("slow", "", locked(`{"key":"k",`+ttl+`}`)+","+deadline(`{"value":20,"unit":"millisecond"}`)))
		f.wantProblems(got, 504, "DEADLINE_EXCEEDED")
		f.wantHeld()
		if !strings.Contains(got.entry("urn:cline:forrst:ext:atomic-lock"), `"acquired":true`) {
			t.Error(got.body)
		}
	})
}

func TestLockOfALateAcquireIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bubbled(t)
		// The lock is granted in time, and what follows takes too long.
		f.granted = func() { <-time.After(10 * time.Second) }
		got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl), deadline(`{"value":3}`)))
		f.wantProblems(got, 504, "DEADLINE_EXCEEDED")
		f.wantHeld()
	})
}

func TestClientThatGoesIsNoDeadline(t *testing.T) {
	f := newFixture(t, function("f", func(ctx context.Context) (any, error) { return nil, ctx.Err() }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("f", "", deadline(`{"value":3}`))))
	f.wantProblems(f.serve(request), 499, "CANCELLED")
}

// slowBody lets time pass while it is read.
type slowBody struct {
	io.Reader
	f *fixture
}

func (s slowBody) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		s.f.clock.SetTime(s.f.clock.Now().Add(5 * time.Second))
	}
	return n, err
}

func TestDeadlineRunsFromTheReceiptOfTheRequest(t *testing.T) {
	for _, options := range []string{`{"value":5}`, `{"deadline":"0001-01-01T00:00:00Z"}`} {
		f := newFixture(t)
		body := slowBody{strings.NewReader(envelopeWith(ping, "", deadline(options))), f}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, body)
		f.wantProblems(f.serve(request), 504, "DEADLINE_EXCEEDED")
	}
}
