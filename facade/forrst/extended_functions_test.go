package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const stamps = `"acquired_at":"2024-03-15T10:30:00Z","renewed_at":"2024-03-15T10:30:00Z"`

func TestAcquireFunction(t *testing.T) {
	global := lock.Request{Acquisition: rules.Acquisition{Scope: v1alpha1.ScopeGlobal, Key: "k", Holder: access.Anonymous}}
	full := global
	full.Scope, full.Function, full.TTL, full.Owner, full.Reason, full.Wait = v1alpha1.ScopeFunction, "payments.charge", 30*time.Second, "o", "monthly close", 2*time.Second
	cases := map[string]struct {
		arguments string
		want      lock.Request
		result    string
	}{
		"the defaults": {`"key":"k"`, global, `{"key":"k","acquired":true,"full_key":"lock:k","owner":"` + generated + `","scope":"global","holder":"system:anonymous",` +
			`"ttl":{"value":300,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:35:00Z","fencing_token":1}`},
		"null for the defaults": {`"key":"k","scope":null,"function":null,"ttl":null,"block":null,"owner":null,"reason":null`, global, ``},
		"no reason":             {`"key":"k","reason":"","unknown":1`, global, ``},
		"everything": {`"key":"k","scope":"function","function":"payments.charge","ttl":{"value":30},"block":{"value":2},"owner":"o","reason":"monthly close"`, full,
			`{"key":"k","acquired":true,"full_key":"lock:payments.charge:k","owner":"o","scope":"function","function":"payments.charge","holder":"system:anonymous","reason":"monthly close",` +
				`"ttl":{"value":30,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:30:30Z","fencing_token":1}`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			got := f.post(envelopeWith(wire.Acquire, arguments(test.arguments), ""))
			if diff := cmp.Diff([]lock.Request{test.want}, f.requests()); diff != "" {
				t.Errorf("acquired (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.result, string(got.Result)); test.result != "" && diff != "" || got.status != 200 || got.fencing != 1 {
				t.Errorf("status %d, token %d (-want +got):\n%s", got.status, got.fencing, diff)
			}
			f.wantHeld(string(test.want.FullKey()))
		})
	}
}

func TestArgumentsOfVendorFunctionsThatAreRefused(t *testing.T) {
	cases := map[string]struct {
		function, arguments string
		want                []string
	}{
		"nothing":                           {wire.Acquire, ``, []string{"key"}},
		"everything wrong":                  {wire.Acquire, `"key":1,"block":2,"owner":3,"scope":4,"function":5,"ttl":6,"reason":7`, []string{"key", "block", "owner", "scope", "function", "ttl", "reason"}},
		"a control character":               {wire.Acquire, `"key":"a\u0000"`, []string{"key"}},
		"white space at the end":            {wire.Acquire, `"key":"a "`, []string{"key"}},
		"an invisible character":            {wire.Acquire, `"key":"a\u200b"`, []string{"key"}},
		"a function with a byte order mark": {wire.Acquire, `"key":"k","scope":"function","function":"\ufefff"`, []string{"function"}},
		"a key of 513 bytes":                {wire.Acquire, `"key":"` + strings.Repeat("k", 513) + `"`, []string{"key"}},
		"a long owner":                      {wire.Acquire, `"key":"k","owner":"` + strings.Repeat("o", 513) + `"`, []string{"owner"}},
		"a long reason":                     {wire.Acquire, `"key":"k","reason":"` + strings.Repeat("é", 1025) + `"`, []string{"reason"}},
		"renewal of nothing":                {wire.Renew, ``, []string{"key", "owner"}},
		"renewal of the grant zero":         {wire.Renew, `"key":"k","owner":"o","fencing_token":0`, []string{"fencing_token"}},
		"renewal of a half grant":           {wire.Renew, `"key":"k","owner":"o","fencing_token":1.5`, []string{"fencing_token"}},
		"release of a grant too large":      {wire.Release, `"key":"k","owner":"o","fencing_token":9223372036854775808`, []string{"fencing_token"}},
		"release of a text":                 {wire.Release, `"key":"k","owner":"o","fencing_token":"1"`, []string{"fencing_token"}},
		"release of nothing":                {wire.Release, ``, []string{"key", "owner"}},
		"status of nothing":                 {wire.Status, ``, []string{"key"}},
		"the locks of no owner":             {wire.List, `"owner":""`, []string{"owner"}},
		"the locks of a number":             {wire.List, `"owner":1`, []string{"owner"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.hold("k", "o", time.Minute)
			var want []string
			for _, pointer := range test.want {
				want = append(want, "INVALID_ARGUMENTS /call/arguments/"+pointer)
			}
			f.wantProblems(f.post(envelopeWith(test.function, arguments(test.arguments), "")), 400, want...)
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("tried %+v", calls)
			}
		})
	}
}

// What is wrong with a value is decided in one place, and told in the words of the protocol.
func TestHowArgumentsAreRefused(t *testing.T) {
	const aDay = ` {"max":{"value":86400,"unit":"second"}}`
	cases := map[string]struct {
		function, arguments string
		want                []string
	}{
		"a ttl above the maximum": {wire.Acquire, `"key":"k","ttl":{"value":25,"unit":"hour"}`,
			[]string{"ttl/value: value must be at most 86400 seconds" + aDay}},
		"a renewal above the maximum": {wire.Renew, `"key":"k","owner":"o","ttl":{"value":25,"unit":"hour"}`,
			[]string{"ttl/value: value must be at most 86400 seconds" + aDay}},
		"a renewal for longer than time can be": {wire.Renew, `"key":"k","owner":"o","ttl":{"value":1e30}`,
			[]string{"ttl/value: value must be at most 86400 seconds" + aDay}},
		"a renewal by zero": {wire.Renew, `"key":"k","owner":"o","ttl":{"value":0}`, []string{"ttl/value: value must be more than zero"}},
		"a delay above the maximum, with a holder": {wire.Acquire, `"key":"k",` + otherPodJSON + `,"release_delay":{"value":25,"unit":"hour"}`,
			[]string{"release_delay/value: value must be at most 86400 seconds" + aDay}},
		"a delay above the maximum, without a holder": {wire.Acquire, `"key":"k","release_delay":{"value":1e30}`,
			[]string{"release_delay/value: value must be at most 86400 seconds" + aDay}},
		"a delay below zero": {wire.Acquire, `"key":"k","release_delay":{"value":-1}`, []string{"release_delay/value: value must not be negative"}},
		"a delay without a holder": {wire.Acquire, `"key":"k","release_delay":{"value":1}`,
			[]string{"release_delay: release_delay: Forbidden: needs a holderRef: it counts from the end of that object"}},
		"a delay of zero":       {wire.Acquire, `"key":"k","release_delay":{"value":0}`, []string{}},
		"a malformed reference": {wire.Acquire, `"key":"k","holder_ref":1,"release_delay":{"value":1}`, []string{"holder_ref: holder_ref must be an object"}},
		"a malformed reference and a delay above the maximum": {wire.Acquire, `"key":"k","holder_ref":1,"release_delay":{"value":25,"unit":"hour"}`,
			[]string{"holder_ref: holder_ref must be an object", "release_delay/value: value must be at most 86400 seconds" + aDay}},
		"a scope without a function":    {wire.Acquire, `"key":"k","scope":"function"`, []string{`function: function is required when scope is "function"`}},
		"a function without its scope":  {wire.Acquire, `"key":"k","function":"f"`, []string{`function: function must be absent unless scope is "function"`}},
		"a function in global scope":    {wire.Acquire, `"key":"k","scope":"global","function":"f"`, []string{`function: function must be absent unless scope is "function"`}},
		"a function of an unknown kind": {wire.Acquire, `"key":"k","scope":"galaxy","function":"f"`, []string{`scope: scope must be "function" or "global"`}},
		"an empty function":             {wire.Acquire, `"key":"k","scope":"function","function":""`, []string{`function: function must not be empty`}},
		"a function that is no text":    {wire.Acquire, `"key":"k","scope":"function","function":1`, []string{`function: function must be a string`}},
		"a priority that is no integer": {wire.Acquire, `"key":"k","priority":1.5`, []string{`priority: priority must be an integer of 32 bits, such as 100 or -5`}},
		"a priority that is too high":   {wire.Acquire, `"key":"k","priority":2147483648`, []string{`priority: priority must be an integer of 32 bits, such as 100 or -5`}},
		"a priority as text":            {wire.Acquire, `"key":"k","priority":"1"`, []string{`priority: priority must be an integer of 32 bits, such as 100 or -5`}},
		"a control character":           {wire.Acquire, `"key":"k","scope":"function","function":"\u0007"`, []string{`function: function must not contain control characters`}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, func(config *testfacade.Settings) { config.Holders = &fakeHolders{known: otherPod} })
			got := f.post(envelopeWith(test.function, arguments(test.arguments), ""))
			problems := []string{}
			for _, problem := range got.Errors {
				at := strings.TrimPrefix(*problem.Source.Pointer, "/call/arguments/")
				problems = append(problems, strings.TrimSpace(at+": "+problem.Message+" "+string(problem.Details)))
			}
			if diff := cmp.Diff(test.want, problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The function may tell who holds the lock, which the extension must not. Neither
// tells the owner token.
func TestAcquireFunctionTellsAboutTheHolder(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "secret-owner", time.Minute)
	for members, want := range map[string]string{
		``:                     `LOCK_ACQUISITION_FAILED {"key":"k","scope":"global","full_key":"lock:k","holder":"alice","expires_at":"2024-03-15T10:31:00Z"}`,
		`,"block":{"value":2}`: `LOCK_TIMEOUT {"key":"k","scope":"global","full_key":"lock:k","waited":{"value":2},"holder":"alice","expires_at":"2024-03-15T10:31:00Z"}`,
	} {
		got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k"`+members), ""))
		f.wantProblems(got, 423, strings.Fields(want)[0])
		if problem := string(got.Errors[0].Code) + " " + string(got.Errors[0].Details); problem != want {
			t.Errorf("got %s, want %s", problem, want)
		}
	}
	if strings.Contains(f.log.String(), "secret-owner") {
		t.Errorf("the log shows the owner: %s", f.log)
	}
}

func TestHowAcquireFunctionFails(t *testing.T) {
	invalid := &lock.InvalidError{Problems: field.ErrorList{
		field.Invalid(field.NewPath("spec", "key"), "k", "must rhyme"),
		field.Invalid(field.NewPath("spec", "ttl"), "1s", "must be even"),
	}}
	cases := map[string]struct {
		err     error
		status  int
		details string
		want    []string
	}{
		"unavailable":               {fmt.Errorf("no route: %w", lock.ErrUnavailable), 503, `{"retry_after":{"value":1,"unit":"second"}}`, []string{"UNAVAILABLE"}},
		"invalid in fields":         {fmt.Errorf("wrapped: %w", invalid), 400, ``, []string{"INVALID_ARGUMENTS /call/arguments/key", "INVALID_ARGUMENTS /call/arguments/ttl"}},
		"lapsed":                    {fmt.Errorf("wrapped: %w", rules.Lapsed(time.Millisecond)), 400, ``, []string{"INVALID_ARGUMENTS /call/arguments/ttl"}},
		"invalid as a whole":        {fmt.Errorf("%w: no namespace", lock.ErrInvalid), 400, ``, []string{"INVALID_ARGUMENTS /call/arguments"}},
		"held by an unknown holder": {&lock.HeldError{Key: "lock:k"}, 423, `{"key":"k","scope":"global","full_key":"lock:k"}`, []string{"LOCK_ACQUISITION_FAILED"}},
		"refused":                   {fmt.Errorf("wrapped: %w", &lock.RefusedError{Reason: "exceeded quota: q"}), 403, `{"key":"k","reason":"exceeded quota: q"}`, []string{"LOCK_REFUSED"}},
		"unexpected":                {errBroken, 500, ``, []string{"INTERNAL_ERROR"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.before[locktest.Acquire] = func(context.Context) error { return test.err }
			got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k"`), ""))
			f.wantProblems(got, test.status, test.want...)
			if string(got.Errors[0].Details) != test.details || got.Extensions != nil {
				t.Errorf("details %s, want %s; entries %v", got.Errors[0].Details, test.details, got.Extensions)
			}
		})
	}
}

func TestRenewFunction(t *testing.T) {
	for members, want := range map[string]string{
		``:                    `"ttl":{"value":60,"unit":"second"},"acquired_at":"2024-03-15T10:30:00Z","renewed_at":"2024-03-15T10:30:50Z","expires_at":"2024-03-15T10:31:50Z"`,
		`,"ttl":{"value":10}`: `"ttl":{"value":10,"unit":"second"},"acquired_at":"2024-03-15T10:30:00Z","renewed_at":"2024-03-15T10:30:50Z","expires_at":"2024-03-15T10:31:00Z"`,
	} {
		f := newFixture(t)
		f.hold("k", "o", time.Minute)
		f.clock.SetTime(f.clock.Now().Add(50 * time.Second))
		got := f.post(envelopeWith(wire.Renew, arguments(`"key":"forrst_lock:k","owner":"o"`+members), ""))
		want = `{"key":"forrst_lock:k","renewed":true,"full_key":"lock:k","owner":"o","scope":"global","holder":"alice",` + want + `,"fencing_token":1}`
		if diff := cmp.Diff(want, string(got.Result)); diff != "" || got.status != 200 {
			t.Errorf("status %d (-want +got):\n%s", got.status, diff)
		}
	}
}

// Extended lock functions tell a lock that has expired from one that the caller never had.
func TestVendorFunctionsOnWhatTheCallerDoesNotHold(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "secret-owner", time.Minute)
	f.hold("old", "o", time.Second)
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	for _, function := range []string{wire.Renew, wire.Release} {
		for arguments, want := range map[string]string{
			`"key":"lock:x","owner":"o"`:               `404 LOCK_NOT_FOUND {"key":"lock:x"}`,
			`"key":"lock:old","owner":"o"`:             `404 LOCK_NOT_FOUND {"key":"lock:old","expired":true}`,
			`"key":"lock:old","owner":"p"`:             `404 LOCK_NOT_FOUND {"key":"lock:old"}`,
			"\"key\":\"de\u200bploy\",\"owner\":\"o\"": "404 LOCK_NOT_FOUND {\"key\":\"de\u200bploy\"}", // Keys as earlier releases granted them are only kept.
			`"key":"lock:k","owner":"o"`:               `403 LOCK_OWNERSHIP_MISMATCH {"key":"lock:k"}`,
		} {
			got := f.post(envelopeWith(function, `,"arguments":{`+arguments+`}`, ""))
			if len(got.Errors) != 1 || fmt.Sprint(got.status, " ", got.Errors[0].Code, " ", string(got.Errors[0].Details)) != want {
				t.Errorf("%s %s: status %d, %s; want %s", function, arguments, got.status, got.body, want)
			}
			if strings.Contains(got.body+f.log.String(), "secret-owner") {
				t.Errorf("the owner is shown: %s, logged %s", got.body, f.log)
			}
		}
	}
	f.wantHeld("lock:k", "lock:old")
}

// A request of a former grant under the same owner token does nothing to the present one.
func TestVendorFunctionsOnAGrantByItsNumber(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o", time.Second)
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	f.hold("k", "o", time.Minute)
	for _, function := range []string{wire.Renew, wire.Release} {
		got := f.post(envelopeWith(function, arguments(`"key":"k","owner":"o","fencing_token":1`), ""))
		f.wantProblems(got, 404, "LOCK_NOT_FOUND")
	}
	f.wantHeld("lock:k")
	for _, function := range []string{wire.Renew, wire.Release} {
		if got := f.post(envelopeWith(function, arguments(`"key":"k","owner":"o","fencing_token":2`), "")); got.status != 200 {
			t.Errorf("%s: status %d, %s", function, got.status, got.body)
		}
	}
	f.wantHeld()
}

func TestVendorStatus(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o", time.Minute)
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	for key, want := range map[string]string{
		"lock:k": `{"key":"lock:k","locked":true,"checked_at":"2024-03-15T10:30:01Z","full_key":"lock:k","owner":"o","scope":"global","holder":"alice",` +
			`"ttl":{"value":60,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:31:00Z","fencing_token":1}`,
		"x": `{"key":"x","locked":false,"checked_at":"2024-03-15T10:30:01Z"}`,
	} {
		got := f.post(envelopeWith(wire.Status, arguments(`"key":"`+key+`"`), ""))
		if diff := cmp.Diff(want, string(got.Result)); diff != "" || got.status != 200 {
			t.Errorf("status %d (-want +got):\n%s", got.status, diff)
		}
	}
}

func TestListShowsOwnerTokensToThoseWhoKnowThem(t *testing.T) {
	f := newFixture(t)
	f.hold("a", "secret-owner", time.Minute)
	f.hold("old", "o", time.Second)
	f.post(envelopeWith(wire.Acquire, arguments(`"key":"b","scope":"function","function":"f","owner":"o"`), ""))
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	a := `{"key":"a","full_key":"lock:a","scope":"global","holder":"alice","ttl":{"value":60,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:31:00Z","fencing_token":1}`
	b := func(owner string) string {
		return `{"key":"b","full_key":"lock:f:b",` + owner + `"scope":"function","function":"f","holder":"system:anonymous","ttl":{"value":300,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:35:00Z","fencing_token":3}`
	}
	for filter, want := range map[string]string{
		``:               `{"locks":[` + a + `,` + b("") + `]}`,
		`"owner":null`:   `{"locks":[` + a + `,` + b("") + `]}`,
		`"owner":"o"`:    `{"locks":[` + b(`"owner":"o",`) + `]}`,
		`"owner":"none"`: `{"locks":[]}`,
	} {
		got := f.post(envelopeWith(wire.List, arguments(filter), ""))
		if diff := cmp.Diff(want, string(got.Result)); diff != "" || got.status != 200 {
			t.Errorf("%s: status %d (-want +got):\n%s", filter, got.status, diff)
		}
	}
}

func TestListAnswersInParts(t *testing.T) {
	f := newFixture(t)
	for i := range wire.MaxListed + 3 {
		f.hold(fmt.Sprintf("k%04d", i), "o", time.Minute)
	}
	read := func(members string) (locks int, next string) {
		t.Helper()
		var list wire.Locks
		if err := json.Unmarshal(f.post(envelopeWith(wire.List, arguments(members), "")).Result, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Locks), list.Continue
	}
	count, next := read(`"limit":500`)
	if count != wire.MaxListed || next == "" {
		t.Errorf("%d locks, continue %q", count, next)
	}
	if count, next := read(fmt.Sprintf(`"continue":%q`, next)); count != 3 || next != "" {
		t.Errorf("then %d locks, continue %q", count, next)
	}
	if count, next := read(`"limit":2`); count != 2 || next == "" {
		t.Errorf("with a limit: %d locks, continue %q", count, next)
	}
	for members, problem := range map[string]string{
		`"owner":"` + strings.Repeat("o", v1alpha1.MaxOwnerBytes+1) + `"`: "INVALID_ARGUMENTS /call/arguments/owner",
		`"limit":501`:        "INVALID_ARGUMENTS /call/arguments/limit",
		`"limit":0`:          "INVALID_ARGUMENTS /call/arguments/limit",
		`"continue":"never"`: "INVALID_ARGUMENTS /call/arguments/continue",
	} {
		f.wantProblems(f.post(envelopeWith(wire.List, arguments(members), "")), 400, problem)
	}
}

// expiredPages have lost where they were.
type expiredPages struct{ lock.Backend }

func (expiredPages) ListPage(context.Context, string, lock.PageRequest) (lock.Page, error) {
	return lock.Page{}, fmt.Errorf("list: %w", lock.ErrPageExpired)
}

func TestAListThatIsContinuedTooLate(t *testing.T) {
	f := newFixtureWith(t, func(settings *testfacade.Settings) { settings.Locks = expiredPages{} })
	f.wantProblems(f.post(envelopeWith(wire.List, arguments(`"continue":"x"`), "")), 400, "INVALID_ARGUMENTS /call/arguments/continue")
}

// A manifest can hold a lock until a fixed time, and one that is being deleted may have
// lost its number.
func TestLocksThatLackSomething(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		held := grantedWithoutVersion(config.Clock)
		held.Spec.TTL, held.Spec.AcquireTime = nil, nil
		config.Locks = &instantLocks{granted: held}
	})
	got := f.post(envelopeWith(wire.Status, arguments(`"key":"k"`), ""))
	if strings.Contains(got.body, "ttl") || strings.Contains(got.body, "fencing") || got.status != 200 {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}

func TestForceReleaseKeepsTheReason(t *testing.T) {
	f := newFixture(t)
	for members, reason := range map[string]string{`,"reason":"holder is gone"`: "holder is gone", `,"reason":null`: "", `,"reason":""`: "", ``: ""} {
		f.hold("k", "o", time.Minute)
		got := f.post(envelopeWith(forceRelease, arguments(`"key":"k"`+members), ""))
		want := []locktest.Call{{Verb: locktest.ForceRelease, Namespace: namespace, Key: "lock:k", Reason: reason}}
		if diff := cmp.Diff(want, f.locks.Calls()); diff != "" || got.status != 200 {
			t.Errorf("status %d, calls (-want +got):\n%s", got.status, diff)
		}
	}
}

// FuzzAcquireArguments shows that no arguments lead to an internal error.
func FuzzAcquireArguments(f *testing.F) {
	f.Add(`{"key":"k","ttl":{"value":30,"unit":"second"},"scope":"function","function":"f","owner":"o","block":{"value":0.5},"reason":"r"}`)
	f.Add(`{"key":"` + strings.Repeat("é", 300) + `","scope":"global","block":{"value":"1e5"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		fixture := newFixture(t)
		got := fixture.post(envelopeWith(wire.Acquire, `,"arguments":`+text, ""))
		if got.status != 200 && got.status != 400 {
			t.Fatalf("status %d, %s", got.status, got.body)
		}
	})
}
