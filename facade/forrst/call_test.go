package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestPingUnderAllNames(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{ping, "urn:cline:forrst:ext:diagnostics:fn:ping", "forrst.ping"} {
		for _, version := range []string{``, `,"version":null`, `,"version":"1.0.0"`, `,"version":"1"`, `,"arguments":{"ignored":1}`} {
			got := f.post(envelopeWith(name, version, ""))
			if want := `{"status":"healthy","timestamp":"2024-03-15T10:30:00Z"}`; string(got.Result) != want || got.status != 200 {
				t.Errorf("%s %s: status %d, %s", name, version, got.status, got.body)
			}
		}
	}
}

// handledURNs are all spellings of the extensions that are offered.
var handledURNs = []string{
	"urn:cline:forrst:ext:atomic-lock", "urn:cline:forrst:ext:cancellation", "urn:cline:forrst:ext:deadline",
	"urn:cline:forrst:ext:retry", "urn:cline:forrst:ext:tracing",
	"urn:forrst:ext:atomic-lock", "urn:forrst:ext:atomicLock", "urn:forrst:ext:cancellation",
	"urn:forrst:ext:deadline", "urn:forrst:ext:retry", "urn:forrst:ext:tracing",
}

func offered(urns []string) []any {
	var extensions []any
	for _, urn := range urns {
		extensions = append(extensions, map[string]any{"urn": urn, "version": "1.0.0"})
	}
	return extensions
}

func TestCapabilitiesUnderAllNames(t *testing.T) {
	f := newFixture(t, function("payments.charge", result(`{}`)))
	want := map[string]any{
		"service": "lock-operator", "protocol_versions": []any{"0.1.0"}, "protocolVersions": []any{"0.1.0"},
		"functions": []any{
			"urn:cline:forrst:ext:atomic-lock:fn:release", "urn:cline:forrst:fn:atomic-lock:release", "forrst.locks.release",
			"urn:cline:forrst:ext:atomic-lock:fn:force-release", "urn:cline:forrst:fn:atomic-lock:force-release", "forrst.locks.forceRelease",
			"urn:cline:forrst:ext:atomic-lock:fn:status", "urn:cline:forrst:fn:atomic-lock:status", "forrst.locks.status",
			"urn:k8s:forrst:ext:atomic-lock:fn:acquire", "urn:k8s:forrst:ext:atomic-lock:fn:acquire-all", "urn:k8s:forrst:ext:atomic-lock:fn:renew", "urn:k8s:forrst:ext:atomic-lock:fn:release",
			"urn:k8s:forrst:ext:atomic-lock:fn:status", "urn:k8s:forrst:ext:atomic-lock:fn:list", "urn:k8s:forrst:ext:atomic-lock:fn:waiters",
			"urn:cline:forrst:fn:ping", "urn:cline:forrst:ext:diagnostics:fn:ping", "forrst.ping",
			"urn:cline:forrst:fn:health", "urn:cline:forrst:ext:diagnostics:fn:health", "forrst.health",
			"urn:cline:forrst:fn:capabilities", "urn:cline:forrst:ext:discovery:fn:capabilities", "forrst.capabilities",
			"urn:cline:forrst:fn:describe", "forrst.describe", "urn:cline:forrst:ext:discovery:fn:describe",
			"urn:cline:forrst:ext:cancellation:fn:cancel",
			"payments.charge",
		},
		"extensions": offered(slices.Concat(handledURNs, []string{
			"urn:cline:forrst:ext:diagnostics", "urn:forrst:ext:diagnostics",
			"urn:cline:forrst:ext:discovery", "urn:forrst:ext:discovery", "urn:k8s:forrst:ext:fencing",
		})),
		"limits": map[string]any{
			"max_request_bytes": 1048576.0, "maxRequestSize": 1048576.0, "max_depth": 512.0,
			"max_block": map[string]any{"value": 60.0, "unit": "second"},
		},
	}
	for _, name := range []string{"urn:cline:forrst:fn:capabilities", "urn:cline:forrst:ext:discovery:fn:capabilities", "forrst.capabilities"} {
		var result map[string]any
		got := f.post(envelopeWith(name, "", ""))
		if err := json.Unmarshal(got.Result, &result); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFunctionAndVersionAreResolved(t *testing.T) {
	f := newFixture(t, function("f", result(`"1.0.0"`)))
	for name, version := range map[string]string{
		"the only one is the default": "",
		"an exact version":            `,"version":"1.0.0"`,
		"a number alone":              `,"version":"1"`,
	} {
		if got := f.post(envelopeWith("f", version, "")); string(got.Result) != `"1.0.0"` {
			t.Errorf("%s: %s", name, got.body)
		}
	}

	for _, version := range []string{"1.0.0+build", "1.0.0-rc.1", "0.9.0", "2.0.0", "2"} {
		got := f.post(envelopeWith("f", `,"version":"`+version+`"`, ""))
		f.wantProblems(got, 404, "VERSION_NOT_FOUND /call/version")
		want := `{"function":"f","requested_version":"` + version + `","available_versions":["1.0.0"]}`
		if string(got.Errors[0].Details) != want || got.Errors[0].Message != "Version "+version+" not found for function f" {
			t.Errorf("%+v, details %s", got.Errors[0], got.Errors[0].Details)
		}
	}
	f.wantProblems(f.post(envelopeWith("unknown", `,"version":"9.9.9"`, "")), 404, "FUNCTION_NOT_FOUND /call/function")
	f.wantProblems(f.post(envelopeWith("F", "", "")), 404, "FUNCTION_NOT_FOUND /call/function")
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		config testfacade.Settings
		want   string
	}{
		"no locks":     {testfacade.Settings{Namespace: namespace}, "backend"},
		"no namespace": {testfacade.Settings{Locks: locktest.New()}, "Namespace"},
		"no limits":    {testfacade.Settings{Locks: locktest.New(), Namespace: namespace, Limits: rules.Limits{DefaultTTL: 1}}, "ttl"},
		"no routes":    {testfacade.Settings{Locks: locktest.New(), Namespace: namespace, Routing: &forrst.Routing{}}, "Routing needs Routes and a Client"},
	}
	for name, test := range cases {
		if _, err := testfacade.New(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestStepsAreTakenInOrder(t *testing.T) {
	lock, badLock := locked(`{"key":"k","ttl":{"value":1}}`), locked(`{}`)
	cases := map[string]struct {
		body     string
		status   int
		problems []string
	}{
		"the protocol version before the rest": {`{"protocol":{"name":"forrst","version":"9.0.0"},"call":1}`, 400, []string{"INVALID_PROTOCOL_VERSION /protocol/version"}},
		"the envelope before the function":     {envelopeWith("unknown", `,"arguments":1`, badLock), 400, []string{"INVALID_REQUEST /call/arguments"}},
		"the function before the lock":         {envelopeWith("unknown", "", lock), 404, []string{"FUNCTION_NOT_FOUND /call/function"}},
		"the function before the options":      {envelopeWith("unknown", "", badLock), 404, []string{"FUNCTION_NOT_FOUND /call/function"}},
		"the version before the lock":          {envelopeWith(ping, `,"version":"7.0.0"`, lock), 404, []string{"VERSION_NOT_FOUND /call/version"}},
		"options, extensions and arguments at once": {
			envelopeWith("f", `,"arguments":{}`, `{"urn":"urn:forrst:ext:dry-run"},`+badLock),
			400, []string{"EXTENSION_NOT_SUPPORTED /extensions/0", "INVALID_ARGUMENTS /extensions/1/options/key", "INVALID_ARGUMENTS /extensions/1/options/ttl", "INVALID_ARGUMENTS /call/arguments/n"},
		},
		"arguments before the lock":         {envelopeWith("f", "", lock), 400, []string{"INVALID_ARGUMENTS /call/arguments/n"}},
		"other extensions before the lock":  {envelopeWith(ping, "", lock+`,{"urn":"urn:cline:forrst:ext:dry-run","options":{"enabled":true}}`), 400, []string{"EXTENSION_NOT_SUPPORTED /extensions/1"}},
		"the second lock before any at all": {envelopeWith(ping, "", lock+`,{"urn":"urn:forrst:ext:atomicLock","options":{"key":"other","ttl":{"value":1}}}`), 400, []string{"INVALID_REQUEST /extensions/1"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			picky := function("f", result(`1`))
			picky.Prepare = func(request *envelope.Request) (forrst.Invocation, envelope.Errors) {
				var problems envelope.Errors
				fields, _ := envelope.ReadObject(request.Call.Arguments, "/call/arguments", &problems)
				fields.RequiredText("n")
				return result(`1`), problems
			}
			f := newFixture(t, picky)
			f.wantProblems(f.post(test.body), test.status, test.problems...)
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("a lock was tried: %+v", calls)
			}
		})
	}
}

func TestExtensionsThatAreIgnored(t *testing.T) {
	f := newFixture(t)
	var elements []string
	for _, urn := range []string{
		"urn:acme:forrst:ext:x", "urn:forrst:ext:unheard-of", "nonsense", "urn:forrst:ext:batch",
		"urn:forrst:ext:async", "urn:cline:forrst:ext:priority", "urn:forrst:ext:caching", "urn:forrst:ext:locale",
		"urn:forrst:ext:quota", "urn:forrst:ext:rate-limit", "urn:forrst:ext:retry", "urn:forrst:ext:deprecation",
	} {
		elements = append(elements, fmt.Sprintf(`{"urn":%q,"options":{"key":1}}`, urn))
	}
	got := f.post(envelopeWith(ping, "", strings.Join(elements, ",")))
	if got.status != 200 || got.Extensions != nil || strings.Contains(got.body, "extensions") {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}

func TestExtensionsThatMustNotBeIgnored(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"dry-run", "simulation", "replay", "idempotency"} {
		for _, dialect := range []string{"urn:forrst:ext:", "urn:cline:forrst:ext:"} {
			got := f.post(envelopeWith(ping, "", `{"urn":"x"},{"urn":"`+dialect+name+`"}`))
			f.wantProblems(got, 400, "EXTENSION_NOT_SUPPORTED /extensions/1")
			want := `{"unsupported":["` + dialect + name + `"],"supported":["` + strings.Join(handledURNs, `","`) + `"]}`
			if string(got.Errors[0].Details) != want {
				t.Errorf("details %s, want %s", got.Errors[0].Details, want)
			}
		}
	}
}

func TestADryRunThatIsNotAskedForIsIgnored(t *testing.T) {
	f := newFixture(t)
	dryRun := func(options string) answer {
		return f.post(envelopeWith(ping, "", `{"urn":"urn:forrst:ext:dry-run","options":`+options+`}`))
	}
	if got := dryRun(`{"enabled":false}`); got.status != 200 || got.Extensions != nil {
		t.Errorf("got %s", got.body)
	}
	for _, options := range []string{`{"enabled":true}`, `{}`, `{"enabled":null}`, `{"enabled":"false"}`, `{"enabled":0}`, `{"enabled":false,"enabled":true}`, `{"enabled":false,"enabled":false}`} {
		f.wantProblems(dryRun(options), 400, "EXTENSION_NOT_SUPPORTED /extensions/0")
	}
	f.wantProblems(f.post(envelopeWith(ping, "", `{"urn":"urn:forrst:ext:replay","options":{"enabled":false}}`)), 400, "EXTENSION_NOT_SUPPORTED /extensions/0")
}

func TestHowFunctionsEnd(t *testing.T) {
	conflict := envelope.Error{Code: envelope.Conflict, Message: "m"}
	cases := map[string]struct {
		invoke   forrst.Invocation
		status   int
		problems []string
	}{
		"with an error of the protocol": {func(context.Context) (any, error) { return nil, fmt.Errorf("wrapped: %w", &conflict) }, 409, []string{"CONFLICT"}},
		"with several":                  {func(context.Context) (any, error) { return nil, envelope.Errors{conflict, conflict} }, 400, []string{"CONFLICT", "CONFLICT"}},
		"with an empty list of errors":  {func(context.Context) (any, error) { return nil, envelope.Errors{} }, 500, []string{"INTERNAL_ERROR"}},
		"with any other error":          {func(context.Context) (any, error) { return nil, errBroken }, 500, []string{"INTERNAL_ERROR"}},
		"with what cannot be encoded":   {func(context.Context) (any, error) { return make(chan int), nil }, 500, []string{"INTERNAL_ERROR"}},
		"with a panic":                  {func(context.Context) (any, error) { panic("something broke") }, 500, []string{"INTERNAL_ERROR"}},
		"with a panic of net/http":      {func(context.Context) (any, error) { panic(http.ErrAbortHandler) }, 500, []string{"INTERNAL_ERROR"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, function("f", test.invoke))
			got := f.post(envelopeWith("f", "", ""))
			f.wantProblems(got, test.status, test.problems...)
			if *got.ID != "a-1" || strings.Contains(got.body, "something broke") {
				t.Errorf("answered %s", got.body)
			}
			if (f.log.Len() > 0) != (test.status == 500) {
				t.Errorf("logged %q", f.log)
			}
		})
	}
}
