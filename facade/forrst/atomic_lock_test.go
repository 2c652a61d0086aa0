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
	with := func(option string) string { return `{"key":"k",` + ttl + `,` + option + `}` }
	key := func(key string) string { return `{` + ttl + `,` + key + `}` }
	lasting := func(length string) string { return `{"key":"k","ttl":` + length + `}` }
	// Where the mistakes are in the options.
	for options, want := range map[string]string{
		`null`: "key ttl", `{}`: "key ttl", `[]`: "key ttl", // PHP writes an empty object as an array.
		`{"key":1,"ttl":2,"scope":3,"block":4,"owner":5,"auto_release":6}`:       "key ttl scope block owner auto_release",
		`{"key":"","ttl":{},"scope":"","block":{},"owner":"","auto_release":""}`: "key ttl/value scope block/value owner auto_release",
		lasting(`{"value":-1,"unit":"x"}`):                                       "ttl/unit ttl/value", lasting(`{"value":0,"unit":"x"}`): "ttl/unit ttl/value",
		lasting(`{"value":1e99,"unit":"x"}`): "ttl/unit", lasting(`{"value":"x","unit":"x"}`): "ttl/value ttl/unit",
		lasting(`null`): "ttl", lasting(`"30s"`): "ttl", lasting(`[]`): "ttl/value", lasting(`{"value":0}`): "ttl/value", lasting(`{"value":-5}`): "ttl/value",
		lasting(`{"value":5,"unit":"seconds"}`): "ttl/unit", lasting(`{"value":86400.001}`): "ttl/value", lasting(`{"value":1e99}`): "ttl/value",
		key(`"key":null`): "key", key(`"key":[]`): "key", key(`"key":"a","key":"a"`): "key", key(`"key":"a\u0000"`): "key", key(`"key":"a\n"`): "key",
		key(`"key":"\u0085"`): "key", key(`"key":"` + strings.Repeat("k", 513) + `"`): "key",
		with(`"scope":"Global"`): "scope", with(`"scope":"galaxy"`): "scope", with(`"scope":true`): "scope", with(`"scope":{}`): "scope",
		with(`"owner":{}`): "owner", with(`"owner":"` + strings.Repeat("o", 513) + `"`): "owner",
		with(`"auto_release":"true"`): "auto_release", with(`"auto_release":1`): "auto_release", with(`"auto_release":0`): "auto_release",
		with(`"block":5`): "block", with(`"block":{"value":-1}`): "block/value", with(`"block":{"value":1,"unit":"x"}`): "block/unit",
		with(`"block":{"value":25,"unit":"hour"}`): "block/value", with(`"block":{"value":60.001,"unit":"second"}`): "block/value",
		with(`"block":"5s"`): "block", with(`"block":true`): "block", with(`"block":{"unit":"second"}`): "block/value", with(`"block":{"value":1,"value":2}`): "block/value",
	} {
		t.Run(fmt.Sprintf("%.60s", options), func(t *testing.T) {
			f := newFixture(t)
			var problems []string
			for pointer := range strings.FieldsSeq(want) {
				problems = append(problems, "INVALID_ARGUMENTS /extensions/1/options/"+pointer)
			}
			got := f.post(envelopeWith(ping, "", `{"urn":"urn:x"},`+locked(options)))
			f.wantProblems(got, 400, problems...)
			if calls := f.locks.Calls(); got.Extensions != nil || len(calls) > 0 {
				t.Errorf("entries %v, tried %v", got.Extensions, calls)
			}
		})
	}
	f := newFixture(t)
	f.wantProblems(f.post(envelopeWith(ping, "", `{"urn":"urn:forrst:ext:atomicLock"}`)), 400, "INVALID_ARGUMENTS /extensions/0/options/key", "INVALID_ARGUMENTS /extensions/0/options/ttl")
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
