package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const ttl = `"ttl":{"value":30,"unit":"second"}`

func TestLockOptions(t *testing.T) {
	longKey := strings.Repeat("k", 200)
	charge := func(key string) lock.Request {
		return lock.Request{Acquisition: rules.Acquisition{Scope: v1alpha1.ScopeFunction, Function: "payments.charge", Key: key, TTL: 30 * time.Second, Holder: access.Anonymous}}
	}
	global, owned, short, fraction := charge("k"), charge("k"), charge("k"), charge("k")
	global.Scope, global.Function = v1alpha1.ScopeGlobal, ""
	owned.Owner = "job-17 ü"
	short.TTL = 24 * time.Hour
	fraction.TTL = 501 * time.Millisecond

	cases := map[string]struct {
		options string
		want    lock.Request
		data    string
	}{
		"the defaults":           {`{"key":"k",` + ttl + `}`, charge("k"), `{"key":"k","acquired":true,"owner":"` + generated + `","scope":"function","expires_at":"2024-03-15T10:30:30Z"}`},
		"null for the defaults":  {`{"key":"k",` + ttl + `,"scope":null,"block":null,"owner":null,"auto_release":null}`, charge("k"), ""},
		"scope function":         {`{"key":"k",` + ttl + `,"scope":"function"}`, charge("k"), ""},
		"scope global":           {`{"key":"k",` + ttl + `,"scope":"global"}`, global, `{"key":"k","acquired":true,"owner":"` + generated + `","scope":"global","expires_at":"2024-03-15T10:30:30Z"}`},
		"an owner":               {`{"key":"k",` + ttl + `,"owner":"job-17 ü"}`, owned, `{"key":"k","acquired":true,"owner":"job-17 ü","scope":"function","expires_at":"2024-03-15T10:30:30Z"}`},
		"the longest ttl":        {`{"key":"k","ttl":{"value":1,"unit":"day"}}`, short, ""},
		"a ttl with a fraction":  {`{"key":"k","ttl":{"value":"0.5001"}}`, fraction, `{"key":"k","acquired":true,"owner":"` + generated + `","scope":"function","expires_at":"2024-03-15T10:30:00.501000Z"}`},
		"an unknown option":      {`{"key":"k",` + ttl + `,"Key":7,"wait":true}`, charge("k"), ""},
		"a key of all its signs": {`{"key":"Az_09:.-:meta:x",` + ttl + `}`, charge("Az_09:.-:meta:x"), ""},
		"a key of 200 bytes":     {`{"key":"` + longKey + `",` + ttl + `}`, charge(longKey), ""},
		"a key of other letters": {`{"key":"Ключ 🔑/~",` + ttl + `}`, charge("Ключ 🔑/~"), ""},
		"a key like a full key":  {`{"key":"lock:x",` + ttl + `}`, charge("lock:x"), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, function("payments.charge", result(`7`)))
			got := f.post(envelopeWith("payments.charge", "", locked(test.options)))
			if got.status != 200 || string(got.Result) != "7" {
				t.Fatalf("status %d, %s", got.status, got.body)
			}
			if diff := cmp.Diff([]lock.Request{test.want}, f.requests()); diff != "" {
				t.Errorf("acquired (-want +got):\n%s", diff)
			}
			if data := string(got.Extensions[0].Data); test.data != "" && data != test.data {
				t.Errorf("data %s, want %s", data, test.data)
			}
			f.wantHeld()
		})
	}
}

func TestLockOptionsThatAreRefused(t *testing.T) {
	cases := map[string]struct {
		element string
		want    []string
	}{
		"no options":                {`{"urn":"urn:forrst:ext:atomicLock"}`, []string{"key", "ttl"}},
		"options of null":           {locked(`null`), []string{"key", "ttl"}},
		"empty options":             {locked(`{}`), []string{"key", "ttl"}},
		"empty options of PHP":      {locked(`[]`), []string{"key", "ttl"}},
		"everything wrong":          {locked(`{"key":1,"ttl":2,"scope":3,"block":4,"owner":5,"auto_release":6}`), []string{"key", "ttl", "scope", "block", "owner", "auto_release"}},
		"everything empty":          {locked(`{"key":"","ttl":{},"scope":"","block":{},"owner":"","auto_release":""}`), []string{"key", "ttl/value", "scope", "block/value", "owner", "auto_release"}},
		"a negative ttl in no unit": {locked(`{"key":"k","ttl":{"value":-1,"unit":"x"}}`), []string{"ttl/unit", "ttl/value"}},
		"a ttl of zero in no unit":  {locked(`{"key":"k","ttl":{"value":0,"unit":"x"}}`), []string{"ttl/unit", "ttl/value"}},
		"a large ttl in no unit":    {locked(`{"key":"k","ttl":{"value":1e99,"unit":"x"}}`), []string{"ttl/unit"}},
		"both parts of a ttl":       {locked(`{"key":"k","ttl":{"value":"x","unit":"x"}}`), []string{"ttl/value", "ttl/unit"}},
	}
	for key, pointer := range map[string]string{
		`"key":null`: "key", `"key":[]`: "key", `"key":"a","key":"a"`: "key",
		`"key":"a\u0000"`: "key", `"key":"a\n"`: "key", `"key":"\u0085"`: "key", `"key":"` + strings.Repeat("k", 513) + `"`: "key",
	} {
		cases[key] = struct {
			element string
			want    []string
		}{locked(`{` + ttl + `,` + key + `}`), []string{pointer}}
	}
	for option, pointer := range map[string]string{
		`"scope":"Global"`: "scope", `"scope":"galaxy"`: "scope", `"scope":true`: "scope", `"scope":{}`: "scope",
		`"owner":{}`: "owner", `"owner":"` + strings.Repeat("o", 513) + `"`: "owner",
		`"auto_release":"true"`: "auto_release", `"auto_release":1`: "auto_release", `"auto_release":0`: "auto_release",
		`"block":5`: "block", `"block":{"value":-1}`: "block/value", `"block":{"value":1,"unit":"x"}`: "block/unit",
		`"block":{"value":25,"unit":"hour"}`: "block/value", `"block":{"value":60.001,"unit":"second"}`: "block/value",
		`"block":"5s"`: "block", `"block":true`: "block", `"block":{"unit":"second"}`: "block/value", `"block":{"value":1,"value":2}`: "block/value",
	} {
		cases[option] = struct {
			element string
			want    []string
		}{locked(`{"key":"k",` + ttl + `,` + option + `}`), []string{pointer}}
	}
	for length, pointer := range map[string]string{
		`null`: "ttl", `"30s"`: "ttl", `[]`: "ttl/value", `{"value":0}`: "ttl/value", `{"value":-5}`: "ttl/value",
		`{"value":5,"unit":"seconds"}`: "ttl/unit", `{"value":86400.001}`: "ttl/value", `{"value":1e99}`: "ttl/value",
	} {
		cases[length] = struct {
			element string
			want    []string
		}{locked(`{"key":"k","ttl":` + length + `}`), []string{pointer}}
	}
	for name, test := range cases {
		t.Run(fmt.Sprintf("%.40s", name), func(t *testing.T) {
			f := newFixture(t)
			var want []string
			for _, pointer := range test.want {
				want = append(want, "INVALID_ARGUMENTS /extensions/1/options/"+pointer)
			}
			got := f.post(envelopeWith(ping, "", `{"urn":"urn:x"},`+test.element))
			f.wantProblems(got, 400, want...)
			if calls := f.locks.Calls(); got.Extensions != nil || len(calls) > 0 {
				t.Errorf("entries %v, tried %v", got.Extensions, calls)
			}
		})
	}
}

func TestTTLAboveTheMaximumNamesTheMaximum(t *testing.T) {
	got := newFixture(t).post(envelopeWith(ping, "", locked(`{"key":"k","ttl":{"value":25,"unit":"hour"}}`)))
	if want := `{"max":{"value":86400,"unit":"second"}}`; string(got.Errors[0].Details) != want {
		t.Errorf("details %s, want %s", got.Errors[0].Details, want)
	}
}

func TestScopeFunctionNeedsAUsableName(t *testing.T) {
	long := strings.Repeat("f", 513)
	f := newFixture(t, function(long, result(`1`)))
	f.wantProblems(f.post(envelopeWith(long, "", locked(`{"key":"k",`+ttl+`}`))), 400, "INVALID_ARGUMENTS /extensions/0/options/scope")
	if got := f.post(envelopeWith(long, "", locked(`{"key":"k",`+ttl+`,"scope":"global"}`))); got.status != 200 {
		t.Errorf("with scope global: %s", got.body)
	}
}

func TestLockUnderAllNamesIsEchoedAsReceived(t *testing.T) {
	for _, urn := range []string{"urn:cline:forrst:ext:atomic-lock", "urn:forrst:ext:atomicLock", "urn:forrst:ext:atomic-lock"} {
		got := newFixture(t).post(envelopeWith(ping, "", `{"urn":"`+urn+`","options":{"key":"k",`+ttl+`}}`))
		if len(got.Extensions) != 1 || got.Extensions[0].URN != urn {
			t.Errorf("%s: %s", urn, got.body)
		}
	}
}

func TestFunctionRunsInsideItsLock(t *testing.T) {
	var f *fixture
	f = newFixture(t, function("payments.charge", func(context.Context) (any, error) {
		f.wantHeld("lock:payments.charge:user:1")
		return nil, nil
	}))
	if got := f.post(envelopeWith("payments.charge", "", locked(`{"key":"user:1",`+ttl+`}`))); got.status != 200 {
		t.Error(got.body)
	}
	f.wantHeld()
}

func TestAHeldLockIsRefusedAndItsHolderUndisturbed(t *testing.T) {
	ran := false
	f := newFixture(t, function("payments.charge", func(context.Context) (any, error) {
		ran = true
		return nil, nil
	}))
	f.hold("payments.charge:user:1", "secret-owner", time.Minute)
	before, err := f.locks.Get(t.Context(), namespace, "lock:payments.charge:user:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, options := range []string{
		`{"key":"user:1",` + ttl + `}`,                        // A global lock can have the same full key.
		`{"key":"user:1",` + ttl + `,"owner":"secret-owner"}`, // Not re-entrant.
		`{"key":"user:1",` + ttl + `,"auto_release":false}`,
	} {
		got := f.post(envelopeWith("payments.charge", "", locked(options)))
		want := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1","result":null,` +
			`"errors":[{"code":"LOCK_ACQUISITION_FAILED","message":"Unable to acquire lock","details":{"key":"user:1","scope":"function","full_key":"lock:payments.charge:user:1"}}],` +
			`"extensions":[{"urn":"urn:cline:forrst:ext:atomic-lock","data":{"key":"user:1","acquired":false}}]}`
		if diff := cmp.Diff(want, got.body); diff != "" || got.status != 423 {
			t.Errorf("status %d (-want +got):\n%s", got.status, diff)
		}
		if strings.Contains(f.log.String(), "secret-owner") {
			t.Errorf("the log shows the owner: %s", f.log)
		}
	}
	after, err := f.locks.Get(t.Context(), namespace, "lock:payments.charge:user:1")
	if diff := cmp.Diff(before, after); diff != "" || err != nil || ran {
		t.Errorf("ran %t, %v; the holder's record changed (-before +after):\n%s", ran, err, diff)
	}
}

func TestAnExpiredLockIsFree(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "x", time.Second)
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	if got := f.post(envelopeWith(ping, "", locked(`{"key":"k","scope":"global",`+ttl+`}`))); got.status != 200 {
		t.Error(got.body)
	}
}

// The lock ends however the function ends, unless the caller keeps it, and the answer
// tells about it in every case.
func TestLockAfterTheFunction(t *testing.T) {
	failure := &envelope.Error{Code: envelope.Conflict, Message: "m"}
	ways := map[string]struct {
		invoke forrst.Invocation
		status int
	}{
		"success":        {result(`1`), 200},
		"error":          {func(context.Context) (any, error) { return nil, failure }, 409},
		"internal error": {func(context.Context) (any, error) { return nil, errBroken }, 500},
		"panic":          {func(context.Context) (any, error) { panic("oh") }, 500},
	}
	for name, way := range ways {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %t", name, keep), func(t *testing.T) {
				f := newFixture(t, function("f", way.invoke))
				got := f.post(envelopeWith("f", "", locked(fmt.Sprintf(`{"key":"k",%s,"auto_release":%t}`, ttl, !keep))))
				if got.status != way.status {
					t.Errorf("status %d, want %d", got.status, way.status)
				}
				want := `{"key":"k","acquired":true,"owner":"` + generated + `","scope":"function","expires_at":"2024-03-15T10:30:30Z"}`
				if len(got.Extensions) != 1 || string(got.Extensions[0].Data) != want {
					t.Errorf("entries %v, want %s", got.Extensions, want)
				}
				if keep {
					f.wantHeld("lock:f:k")
				} else {
					f.wantHeld()
				}
			})
		}
	}
}

func TestLockOfAClientThatGoesAway(t *testing.T) {
	const during, between = "during the function", "between lock and function"
	for name, kept := range map[string]bool{during: false, between: false, during + ", kept": true, between + ", kept": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ran := false
			f := newFixture(t, function("f", func(ctx context.Context) (any, error) {
				ran = true
				cancel()
				return nil, ctx.Err()
			}))
			if strings.HasPrefix(name, between) {
				f.granted = cancel
			}
			f.before[locktest.Release] = context.Context.Err
			body := envelopeWith("f", "", locked(fmt.Sprintf(`{"key":"k",%s,"auto_release":%t}`, ttl, !kept)))
			got := f.serve(httptest.NewRequestWithContext(ctx, http.MethodPost, forrst.Path, strings.NewReader(body)))
			f.wantProblems(got, 499, "CANCELLED")
			if ran != strings.HasPrefix(name, during) {
				t.Errorf("the function ran: %t", ran)
			}
			if kept && ran {
				f.wantHeld("lock:f:k")
				return
			}
			f.wantHeld()
		})
	}
}

func TestTroubleWithTheReleaseIsOnlyLogged(t *testing.T) {
	cases := map[string]error{
		"unavailable": fmt.Errorf("broken pipe: %w", lock.ErrUnavailable),
		"expired":     lock.ErrExpired,
		"taken over":  lock.ErrOwnerMismatch,
		"unexpected":  errBroken,
	}
	for name, err := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, function("f", result(`1`)))
			f.before[locktest.Release] = func(context.Context) error { return err }
			got := f.post(envelopeWith("f", "", locked(`{"key":"k",`+ttl+`,"owner":"secret-owner"}`)))
			if got.status != 200 || string(got.Result) != "1" {
				t.Errorf("status %d, %s", got.status, got.body)
			}
			log := f.log.String()
			if !strings.Contains(log, err.Error()) || !strings.Contains(log, "lock:f:k") || strings.Contains(log, "secret-owner") {
				t.Errorf("logged %s", log)
			}
		})
	}
}

func TestLocksThatCannotBeTaken(t *testing.T) {
	cases := map[string]struct {
		err    error
		status int
		want   string
		entry  string
	}{
		"unavailable": {fmt.Errorf("no route: %w", lock.ErrUnavailable), 503, "UNAVAILABLE", `{"key":"k","acquired":false}`},
		"invalid":     {fmt.Errorf("%w: spec.key", lock.ErrInvalid), 400, "INVALID_ARGUMENTS /extensions/0/options", ""},
		"unexpected":  {errBroken, 500, "INTERNAL_ERROR", `{"key":"k","acquired":false}`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			ran := false
			f := newFixture(t, function("f", func(context.Context) (any, error) {
				ran = true
				return nil, nil
			}))
			f.before[locktest.Acquire] = func(context.Context) error { return test.err }
			got := f.post(envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`)))
			f.wantProblems(got, test.status, test.want)
			if ran || got.entry("urn:cline:forrst:ext:atomic-lock") != test.entry {
				t.Errorf("ran %t, %s", ran, got.body)
			}
		})
	}
}

func TestHolderIsWhoCalls(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = identified(func(r *http.Request) string { return r.Header.Get("X-User") })
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(ping, "", locked(`{"key":"k","holder":"root",`+ttl+`}`))))
	request.Header.Set("X-User", "alice")
	request.Header.Set("Forrst-Namespace", namespace)
	f.serve(request)
	if requests := f.requests(); len(requests) != 1 || requests[0].Holder != "alice" {
		t.Errorf("acquired %+v", requests)
	}
}

// FuzzLockOptions shows that no options lead to an internal error or leave a lock.
func FuzzLockOptions(f *testing.F) {
	f.Add(`{"key":"k","ttl":{"value":30,"unit":"second"},"scope":"global","owner":"o","auto_release":true}`)
	f.Add(`{"key":"` + strings.Repeat("é", 300) + `","ttl":{"value":"1e5"},"block":{"value":0.1}}`)
	f.Fuzz(func(t *testing.T, options string) {
		if !json.Valid([]byte(options)) {
			return
		}
		fixture := newFixture(t)
		got := fixture.post(envelopeWith(ping, "", locked(options)))
		if got.status != 200 && got.status != 400 {
			t.Fatalf("status %d, %s", got.status, got.body)
		}
		if got.status == 200 && !strings.Contains(options, "auto_release") {
			fixture.wantHeld()
		}
	})
}
