package forrst_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	release      = "urn:cline:forrst:ext:atomic-lock:fn:release"
	forceRelease = "urn:cline:forrst:ext:atomic-lock:fn:force-release"
	status       = "urn:cline:forrst:ext:atomic-lock:fn:status"
)

var aliases = map[string][]string{
	release:      {release, "urn:cline:forrst:fn:atomic-lock:release", "forrst.locks.release"},
	forceRelease: {forceRelease, "urn:cline:forrst:fn:atomic-lock:force-release", "forrst.locks.forceRelease"},
	status:       {status, "urn:cline:forrst:fn:atomic-lock:status", "forrst.locks.status"},
}

func arguments(members string) string { return `,"arguments":{` + members + `}` }

func TestLockFunctionsUnderAllNamesAndSpellingsOfTheKey(t *testing.T) {
	for _, key := range []string{"lock:billing:report", "forrst_lock:billing:report", "billing:report"} {
		results := map[string]string{
			release:      `{"released":true,"key":"` + key + `"}`,
			forceRelease: `{"released":true,"key":"` + key + `","forced":true}`,
			status:       `{"key":"` + key + `","locked":true,"owner":"o","acquired_at":"2024-03-15T10:30:00Z","expires_at":"2024-03-15T10:31:00Z","ttl_remaining":60}`,
		}
		for function, names := range aliases {
			for _, name := range names {
				f := newFixture(t)
				f.hold("billing:report", "o", time.Minute)
				got := f.post(envelopeWith(name, arguments(`"key":"`+key+`","owner":"o"`), ""))
				if diff := cmp.Diff(results[function], string(got.Result)); diff != "" || got.status != 200 {
					t.Errorf("%s: status %d (-want +got):\n%s", name, got.status, diff)
				}
				if (len(f.left()) == 1) != (function == status) {
					t.Errorf("%s leaves %v", name, f.left())
				}
			}
		}
	}
}

func TestOnlyOnePrefixIsTakenOff(t *testing.T) {
	cases := map[string]string{
		"lock:lock:x":        "lock:x",
		"forrst_lock:lock:x": "lock:x",
		"lock:forrst_lock:x": "forrst_lock:x",
		"locker:x":           "locker:x",
		"LOCK:x":             "LOCK:x",
		"lock:Ü":             "Ü",
		"lock:f: k":          "f: k", // As an earlier release granted the key " k" of a function.
		"lock:U\u0308":       "Ü",    // Full keys are compared in NFC.
	}
	for sent, held := range cases {
		f := newFixture(t)
		f.hold(held, "o", time.Minute)
		got := f.post(envelopeWith(release, arguments(`"key":"`+sent+`","owner":"o"`), ""))
		if want := `{"released":true,"key":"` + sent + `"}`; string(got.Result) != want {
			t.Errorf("%s: %s", sent, got.body)
		}
	}
}

func TestReleaseOfWhatTheCallerDoesNotHold(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "secret-owner", time.Minute)
	f.hold("old", "o", time.Second)
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	const missing, mismatch = "LOCK_NOT_FOUND Lock does not exist", "LOCK_OWNERSHIP_MISMATCH Lock is owned by a different process"
	cases := map[string]struct {
		function, arguments, want string
		status                    int
	}{
		"never held":                  {release, `"key":"lock:x","owner":"o"`, missing, 404},
		"never held, by force":        {forceRelease, `"key":"lock:x"`, missing, 404},
		"expired":                     {release, `"key":"lock:old","owner":"o"`, missing, 404},
		"expired, with another owner": {release, `"key":"lock:old","owner":"p"`, missing, 404},
		"expired, by force":           {forceRelease, `"key":"lock:old"`, missing, 404},
		"held by another owner":       {release, `"key":"lock:k","owner":"Secret-Owner"`, mismatch, 403},
		"a key that cannot be":        {release, `"key":"lock:","owner":"o"`, missing, 404},
		"a key of control characters": {forceRelease, `"key":"\u0000"`, missing, 404},
		// As earlier releases granted them: such locks are only kept.
		"a key with an invisible character": {release, "\"key\":\"lock:de\u200bploy\",\"owner\":\"o\"", missing, 404},
		"a key with white space, by force":  {forceRelease, `"key":"lock:deploy "`, missing, 404},
		"a very long key":                   {release, `"key":"` + strings.Repeat("k", 2000) + `","owner":"o"`, missing, 404},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := f.post(envelopeWith(test.function, arguments(test.arguments), ""))
			if len(got.Errors) != 1 || got.status != test.status || string(got.Errors[0].Code)+" "+got.Errors[0].Message != test.want {
				t.Fatalf("status %d, %s", got.status, got.body)
			}
			key, _, _ := strings.Cut(strings.TrimPrefix(test.arguments, `"key":`), `,`)
			if want := `{"key":` + key + `}`; string(got.Errors[0].Details) != want || got.Errors[0].Source != nil {
				t.Errorf("details %s, want %s", got.Errors[0].Details, want)
			}
			if strings.Contains(got.body+f.log.String(), "secret-owner") {
				t.Errorf("the owner is shown: %s, logged %s", got.body, f.log)
			}
		})
	}
	f.wantHeld("lock:k", "lock:old")
}

func TestStatus(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o", 2*time.Second)
	start := f.clock.Now()
	held := func(remaining int) string {
		return fmt.Sprintf(`{"key":"lock:k","locked":true,"owner":"o","acquired_at":"2024-03-15T10:30:00Z","expires_at":"2024-03-15T10:30:02Z","ttl_remaining":%d}`, remaining)
	}
	for passed, want := range map[time.Duration]string{
		-time.Hour:              held(2), // The stamping clock is ahead.
		0:                       held(2),
		time.Nanosecond:         held(1),
		1999 * time.Millisecond: held(0),
		2 * time.Second:         `{"key":"lock:k","locked":false}`,
		time.Hour:               `{"key":"lock:k","locked":false}`,
	} {
		f.clock.SetTime(start.Add(passed))
		got := f.post(envelopeWith(status, arguments(`"key":"lock:k"`), ""))
		if diff := cmp.Diff(want, string(got.Result)); diff != "" || got.status != 200 {
			t.Errorf("after %s: status %d (-want +got):\n%s", passed, got.status, diff)
		}
	}
	if got := f.post(envelopeWith(status, arguments(`"key":"\u0007"`), "")); string(got.Result) != `{"key":"\u0007","locked":false}` {
		t.Errorf("a key that cannot be: %s", got.body)
	}
}

func TestLockFunctionArgumentsThatAreRefused(t *testing.T) {
	const key, owner = "INVALID_ARGUMENTS /call/arguments/key", "INVALID_ARGUMENTS /call/arguments/owner"
	cases := map[string]struct {
		members string
		want    []string
	}{
		"none at all":   {``, []string{key, owner}},
		"null":          {`,"arguments":null`, []string{key, owner}},
		"none":          {arguments(``), []string{key, owner}},
		"none, by PHP":  {`,"arguments":[]`, []string{key, owner}},
		"both null":     {arguments(`"key":null,"owner":null`), []string{key, owner}},
		"both empty":    {arguments(`"key":"","owner":""`), []string{key, owner}},
		"wrong types":   {arguments(`"key":1,"owner":{}`), []string{key, owner}},
		"no owner":      {arguments(`"key":"k"`), []string{owner}},
		"no key":        {arguments(`"owner":"o"`), []string{key}},
		"a key twice":   {arguments(`"key":"k","key":"l","owner":"o"`), []string{key}},
		"another case":  {arguments(`"Key":"k","OWNER":"o"`), []string{key, owner}},
		"an empty list": {arguments(`"key":[],"owner":"o"`), []string{key}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.wantProblems(f.post(envelopeWith(release, test.members, "")), 400, test.want...)
			for _, function := range []string{forceRelease, status} {
				if test.want[0] == key {
					f.wantProblems(f.post(envelopeWith(function, test.members, "")), 400, key)
				}
			}
		})
	}
}

func TestLockFunctionsExcludeTheLockExtension(t *testing.T) {
	all := slices.Concat(slices.Collect(maps.Values(aliases))...)
	for _, name := range append(all, wire.Acquire, wire.Renew, wire.Release, wire.Status, wire.List, wire.ListWaiters) {
		f := newFixture(t)
		f.hold("k", "o", time.Minute)
		got := f.post(envelopeWith(name, arguments(`"key":"lock:k","owner":"o"`), `{"urn":"x"},{"urn":"urn:forrst:ext:atomicLock"}`))
		f.wantProblems(got, 400, "EXTENSION_NOT_APPLICABLE /extensions/1")
		if want := `{"extension":"urn:forrst:ext:atomicLock","function":"` + name + `"}`; string(got.Errors[0].Details) != want {
			t.Errorf("details %s, want %s", got.Errors[0].Details, want)
		}
		f.wantHeld("lock:k")
	}
}

func TestLockFunctionsWithoutAnAPIServer(t *testing.T) {
	f := newFixture(t)
	f.locks.SetUnavailable(true)
	for function := range aliases {
		f.wantProblems(f.post(envelopeWith(function, arguments(`"key":"lock:k","owner":"o"`), "")), 503, "UNAVAILABLE")
	}
}

func TestStatusShowsTheOwnerTokenToThoseWhoMayKnowIt(t *testing.T) {
	for name, test := range map[string]struct {
		caller  string
		granted map[string]bool
		isShown bool
		asked   []string
	}{
		"the holder":                          {"alice", nil, true, []string{"get default"}},
		"another caller":                      {"bob", nil, false, []string{"get default", "force-release default"}},
		"a caller that may force all locks":   {"bob", map[string]bool{"force-release default": true}, true, []string{"get default", "force-release default"}},
		"a caller that may force another one": {"bob", map[string]bool{"force-release default/other": true}, false, []string{"get default", "force-release default"}},
	} {
		t.Run(name, func(t *testing.T) {
			known := &fakeAccess{
				who: func(*http.Request) (user.Info, error) { return &user.DefaultInfo{Name: test.caller}, nil },
				judge: func(_ user.Info, right authorizationv1.ResourceAttributes) error {
					if right.Verb == "get" || right.Verb == "list" || test.granted[right.Verb+" "+right.Namespace] {
						return nil
					}
					return lock.ErrForbidden
				},
			}
			f := newFixtureWith(t, func(config *testfacade.Settings) { config.Access = known })
			f.hold("k", "secret", time.Minute)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path+"/default", strings.NewReader(envelopeWith(status, arguments(`"key":"k"`), "")))
			got := f.serve(request)
			if isShown := strings.Contains(string(got.Result), `"owner":"secret"`); got.status != 200 || isShown != test.isShown || strings.Contains(got.body, "owner") != isShown {
				t.Errorf("got %s", got.body)
			}
			if diff := cmp.Diff(test.asked, known.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			list := f.serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path+"/default", strings.NewReader(envelopeWith(wire.List, arguments(`"owner":"secret"`), ""))))
			if isListed := strings.Contains(list.body, "secret"); isListed != (test.caller == "alice") {
				t.Errorf("the locks of the owner token: %s", list.body)
			}
		})
	}
}
