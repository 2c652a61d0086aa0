package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

func TestFunctionVersion(t *testing.T) {
	for _, text := range []string{"0.0.0", "1.2.3", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0a.b-c", "1.0.0+001", "1.0.0-x.7.z.92+21AF26D3", "99999999999999999999.0.0"} {
		if version, ok := envelope.FunctionVersion(text); !ok || version != text {
			t.Errorf("%q is read as %q, %t", text, version, ok)
		}
	}
	for text, want := range map[string]string{"2": "2.0.0", "0": "0.0.0", "1.2.3-rc.1+b": "1.2.3-rc.1+b"} {
		if version, ok := envelope.FunctionVersion(text); !ok || version != want {
			t.Errorf("%s is read as %q, %t", text, version, ok)
		}
	}
	for _, text := range []string{
		"", "1.0", "v1.0.0", "1.0.0.0", "01.0.0", "1.00.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+", "1.0.0+a_b", " 1.0.0", "1.0.0\n", "１.0.0", "latest",
		"02", "-2", "2.1", "stable",
	} {
		if version, ok := envelope.FunctionVersion(text); ok {
			t.Errorf("%q is read as %q", text, version)
		}
	}
}

// Matching takes much longer than reading, and a body may be one long version.
func TestLongVersionsAreNone(t *testing.T) {
	longest := "1.0.0-" + strings.Repeat("a", 250)
	for text, want := range map[string]bool{longest: true, longest + "a": false, strings.Repeat("1", 257): false} {
		_, isFunctionVersion := envelope.FunctionVersion(text)
		body := `{"protocol":{"name":"forrst","version":"` + strings.Replace(text, "1", "0", 1) + `"},"id":"a","call":{"function":"f"}}`
		_, problems := envelope.DecodeRequest([]byte(body))
		if isFunctionVersion != want || (len(problems) == 0) != want {
			t.Errorf("%d bytes: %t, %v, want %t", len(text), isFunctionVersion, problems, want)
		}
	}
}

func TestExtensionName(t *testing.T) {
	cases := map[string]string{
		"urn:forrst:ext:atomicLock":        "atomic-lock",
		"urn:forrst:ext:atomic-lock":       "atomic-lock",
		"urn:cline:forrst:ext:atomic-lock": "atomic-lock",
		"urn:cline:forrst:ext:atomicLock":  "",
		"urn:forrst:ext:dry-run":           "dry-run",
		"urn:cline:forrst:ext:rate-limit":  "rate-limit",
		"urn:forrst:ext:batch":             "",
		"urn:acme:forrst:ext:atomic-lock":  "",
		"URN:forrst:ext:atomic-lock":       "",
		"urn:forrst:ext:":                  "",
		"":                                 "",
	}
	for urn, want := range cases {
		if got := envelope.ExtensionName(urn); got != want {
			t.Errorf("%q is %q, want %q", urn, got, want)
		}
	}
	for _, urn := range envelope.ExtensionURNs(envelope.AtomicLock) {
		if cases[urn] != envelope.AtomicLock {
			t.Errorf("unexpected URN %q", urn)
		}
	}
}

func TestStatus(t *testing.T) {
	cases := map[int]envelope.Errors{
		200: nil,
		400: {{Code: "ACME_OWN_CODE"}},
		404: {{Code: envelope.FunctionNotFound}},
		423: {{Code: envelope.LockTimeout}},
		499: {{Code: envelope.Cancelled}},
		500: {{Code: envelope.InternalError}},
		504: {{Code: envelope.DeadlineExceeded}},
	}
	for want, problems := range cases {
		if got := (&envelope.Response{Errors: problems}).Status(); got != want {
			t.Errorf("%v has status %d, want %d", problems, got, want)
		}
	}
	several := envelope.Errors{{Code: envelope.InternalError}, {Code: envelope.InternalError}}
	if got := (&envelope.Response{Errors: several}).Status(); got != 400 {
		t.Errorf("several errors have status %d, want 400", got)
	}
}

func TestStatusOfEveryCode(t *testing.T) {
	for status, codes := range map[int]string{
		400: `PARSE_ERROR INVALID_REQUEST INVALID_PROTOCOL_VERSION INVALID_ARGUMENTS EXTENSION_NOT_SUPPORTED
			EXTENSION_NOT_APPLICABLE ASYNC_CANNOT_CANCEL SIMULATION_NOT_SUPPORTED`,
		401: `UNAUTHORIZED`,
		403: `FORBIDDEN LOCK_OWNERSHIP_MISMATCH`,
		404: `FUNCTION_NOT_FOUND VERSION_NOT_FOUND NOT_FOUND ASYNC_OPERATION_NOT_FOUND REPLAY_NOT_FOUND
			CANCELLATION_TOKEN_UNKNOWN LOCK_NOT_FOUND SIMULATION_SCENARIO_NOT_FOUND`,
		409: `CONFLICT IDEMPOTENCY_CONFLICT IDEMPOTENCY_PROCESSING REPLAY_ALREADY_COMPLETE CANCELLATION_TOO_LATE LOCK_ALREADY_RELEASED`,
		410: `GONE REPLAY_EXPIRED REPLAY_CANCELLED`,
		422: `SCHEMA_VALIDATION_FAILED`,
		423: `LOCK_ACQUISITION_FAILED LOCK_TIMEOUT`,
		429: `RATE_LIMITED`,
		499: `CANCELLED`,
		500: `INTERNAL_ERROR ASYNC_OPERATION_FAILED`,
		502: `DEPENDENCY_ERROR`,
		503: `FUNCTION_DISABLED UNAVAILABLE SERVER_MAINTENANCE FUNCTION_MAINTENANCE`,
		504: `DEADLINE_EXCEEDED`,
	} {
		for code := range strings.FieldsSeq(codes) {
			if got := envelope.Code(code).Status(); got != status {
				t.Errorf("%s has status %d, want %d", code, got, status)
			}
		}
	}
}

func TestResponseEncoding(t *testing.T) {
	cases := map[string]struct {
		response *envelope.Response
		want     string
	}{
		"a result": {
			&envelope.Response{ID: new("<ü>"), Result: json.RawMessage(`{"n": 1.00e2}`)},
			`{"protocol":{"name":"","version":""},"id":"<ü>","result":{"n":1.00e2}}`,
		},
		"a null result":   {envelope.NewResponse("a"), `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","result":null}`},
		"an unknown id":   {envelope.NewResponse(""), `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"result":null}`},
		"a root pointer":  {&envelope.Response{Errors: envelope.Errors{envelope.Error{Code: "X", Message: "m"}.At("")}}, `{"protocol":{"name":"","version":""},"id":null,"result":null,"errors":[{"code":"X","message":"m","source":{"pointer":""}}]}`},
		"a zero position": {&envelope.Response{Errors: envelope.Errors{{Code: "X", Message: "m", Source: &envelope.Source{Position: new(0)}}}}, `{"protocol":{"name":"","version":""},"id":null,"result":null,"errors":[{"code":"X","message":"m","source":{"position":0}}]}`},
	}
	for name, test := range cases {
		got := string(envelope.MustEncode(test.response))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		var decoded envelope.Response
		if err := json.Unmarshal([]byte(got), &decoded); err != nil || string(envelope.MustEncode(decoded)) != got {
			t.Errorf("%s does not survive decoding: %v", name, err)
		}
	}
}

func TestPointer(t *testing.T) {
	if got := envelope.Pointer("/call", "arguments", "a/b~c", ""); got != "/call/arguments/a~1b~0c/" {
		t.Errorf("got %q", got)
	}
	if got := envelope.Pointer(""); got != "" {
		t.Errorf("the whole document is %q", got)
	}
}

func TestFormatTimestamp(t *testing.T) {
	cases := map[string]string{
		"2026-02-03T04:05:06Z":           "2026-02-03T04:05:06Z",
		"2026-02-03T04:05:06.5+02:00":    "2026-02-03T02:05:06.500000Z",
		"2026-02-03T04:05:06.123456789Z": "2026-02-03T04:05:06.123456Z",
		"2026-02-03T04:05:06.0000009Z":   "2026-02-03T04:05:06Z",
	}
	for text, want := range cases {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := envelope.FormatTimestamp(moment); got != want {
			t.Errorf("%s is written as %s, want %s", text, got, want)
		}
	}
}

func TestErrorsReadWell(t *testing.T) {
	problems := envelope.Errors{
		envelope.Error{Code: envelope.InvalidArguments, Message: "key is required"}.At("/call/arguments/key"),
		{Code: envelope.InternalError, Message: "Internal error"},
	}
	want := "INVALID_ARGUMENTS at /call/arguments/key: key is required; INTERNAL_ERROR: Internal error"
	if got := problems.Error(); got != want || !strings.Contains(got, "; ") {
		t.Errorf("got %q, want %q", got, want)
	}
}
