package forrst_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/test/support/schema"
)

const discoveryDescribe = "urn:cline:forrst:ext:discovery:fn:describe"

// postBare returns the members of an answer that has no envelope.
func (f *fixture) postBare(body string) (map[string]any, *httptest.ResponseRecorder) {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, forrst.Path, strings.NewReader(body)))
	return decoded[map[string]any](f.t, recorder.Body.Bytes()), recorder
}

// lockRefused are the extensions that functions about locks refuse, as described.
func lockRefused() map[string]any {
	return map[string]any{"excluded": []any{"urn:cline:forrst:ext:atomic-lock", "urn:forrst:ext:atomic-lock", "urn:forrst:ext:atomicLock"}}
}

func TestDescribeOfOneFunction(t *testing.T) {
	f := newFixture(t)
	const name, summary = "urn:cline:forrst:ext:atomic-lock:fn:release", "Releases a lock of the caller"
	const ofKey, ofOwner = `The full key, such as "lock:billing:report"`, "The token that releases the lock"
	text := func(description string, limits map[string]any) map[string]any {
		limits["type"] = "string"
		if description != "" {
			limits["description"] = description
		}
		return limits
	}
	returns := map[string]any{
		"type": "object", "required": []any{"released", "key"},
		"properties": map[string]any{"released": map[string]any{"type": "boolean"}, "key": map[string]any{"type": "string"}},
	}
	schema := map[string]any{
		"arguments": map[string]any{"type": "object", "required": []any{"key", "owner"}, "properties": map[string]any{
			"key":   text(ofKey, map[string]any{"minLength": 1.0}),
			"owner": text(ofOwner, map[string]any{"minLength": 1.0, "maxLength": 512.0}),
		}},
		"returns":     returns,
		"definitions": map[string]any{},
	}
	for _, describe := range []string{"urn:cline:forrst:fn:describe", "forrst.describe"} {
		got := f.post(envelopeWith(describe, arguments(`"function":"forrst.locks.release"`), ""))
		result := decoded[map[string]any](t, got.Result)
		errors := decoded[struct{ Errors []any }](t, got.Result).Errors
		wantErrors := []any{
			map[string]any{"code": "LOCK_NOT_FOUND", "message": "Lock does not exist"},
			map[string]any{"code": "LOCK_OWNERSHIP_MISMATCH", "message": "Lock is owned by a different process"},
		}
		if diff := cmp.Diff(wantErrors, errors[10:]); diff != "" {
			t.Errorf("%d errors (-want +got):\n%s", len(errors), diff)
		}
		delete(result, "errors")
		want := map[string]any{
			"function": "forrst.locks.release", "name": name, "description": summary, "summary": summary, "version": "1.0.0", "stability": "stable",
			"recommended_version": "1.0.0", "side_effects": []any{"delete"}, "discoverable": true, "extensions": lockRefused(),
			"arguments": []any{
				map[string]any{"name": "key", "required": true, "description": ofKey, "schema": text("", map[string]any{"minLength": 1.0})},
				map[string]any{"name": "owner", "required": true, "description": ofOwner, "schema": text("", map[string]any{"minLength": 1.0, "maxLength": 512.0})},
			},
			"result": map[string]any{"schema": returns, "collection": false, "description": "That the lock is released"},
			"versions": []any{
				map[string]any{"version": "1.0.0", "stability": "stable", "description": summary, "schema": schema, "extensions": lockRefused()},
			},
		}
		if diff := cmp.Diff(want, result); diff != "" || got.status != 200 {
			t.Errorf("%s: status %d (-want +got):\n%s", describe, got.status, diff)
		}
	}
}

func TestDescribeOfOneVersionWithoutSchemas(t *testing.T) {
	f := newFixture(t)
	got := f.post(envelopeWith("forrst.describe", arguments(`"function":"forrst.locks.release","version":"1","include_schema":false`), ""))
	result := decoded[map[string]any](t, got.Result)
	want := []any{map[string]any{"version": "1.0.0", "stability": "stable", "description": "Releases a lock of the caller", "extensions": lockRefused()}}
	if diff := cmp.Diff(want, result["versions"]); diff != "" || result["recommended_version"] != "1.0.0" || strings.Contains(got.body, `"schema"`) {
		t.Errorf("%s (-want +got):\n%s", got.body, diff)
	}
}

func TestDescribeWithoutEnvelope(t *testing.T) {
	f := newFixture(t)
	single, recorder := f.postBare(envelopeWith(discoveryDescribe, arguments(`"function":"forrst.locks.release"`), ""))
	if single["name"] != "urn:cline:forrst:ext:atomic-lock:fn:release" || single["version"] != "1.0.0" || recorder.Code != 200 || recorder.Header().Get("X-Forrst-Request-Id") != "a-1" {
		t.Errorf("status %d, %v, %v", recorder.Code, recorder.Header(), single)
	}
	if diff := cmp.Diff([]any{"delete"}, single["sideEffects"]); diff != "" || single["side_effects"] != nil || single["protocol"] != nil {
		t.Errorf("%v (-want +got):\n%s", single, diff)
	}

	document, _ := f.postBare(envelopeWith(discoveryDescribe, "", ""))
	keys := slices.Sorted(maps.Keys(document))
	if diff := cmp.Diff([]string{"components", "discovery", "forrst", "functions", "info", "servers"}, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A failure has an envelope all the same.
	f.wantProblems(f.post(envelopeWith(discoveryDescribe, arguments(`"function":"nothing"`), "")), 404, "FUNCTION_NOT_FOUND /call/arguments/function")
	f.wantProblems(f.post(envelopeWith(discoveryDescribe, "", locked(`{"key":"k",`+ttl+`}`))), 400, "EXTENSION_NOT_APPLICABLE /extensions/0")
}

func TestDescribeOfEverything(t *testing.T) {
	f := newFixture(t)
	document := decoded[map[string]any](t, f.post(envelopeWith("forrst.describe", "", "")).Result)
	bare, _ := f.postBare(envelopeWith(discoveryDescribe, "", ""))
	for _, each := range []map[string]any{document, bare} {
		var names []string
		listed := decoded[struct {
			Functions []struct{ Name, Version string }
		}](t, envelope.MustEncode(each))
		for _, function := range listed.Functions {
			names = append(names, function.Name+" "+function.Version)
		}
		want := []string{
			"urn:cline:forrst:ext:atomic-lock:fn:release 1.0.0", "urn:cline:forrst:ext:atomic-lock:fn:force-release 1.0.0", "urn:cline:forrst:ext:atomic-lock:fn:status 1.0.0",
			"urn:k8s:forrst:ext:atomic-lock:fn:acquire 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:acquire-all 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:renew 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:release 1.0.0",
			"urn:k8s:forrst:ext:atomic-lock:fn:status 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:list 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:waiters 1.0.0",
			"urn:cline:forrst:fn:ping 1.0.0", "urn:cline:forrst:fn:health 1.0.0", "urn:cline:forrst:fn:capabilities 1.0.0",
			"urn:cline:forrst:fn:describe 1.0.0", discoveryDescribe + " 1.0.0", cancelName + " 1.0.0",
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]any{"title": "lock-operator", "version": "0.0.0"}, each["info"]); diff != "" || each["forrst"] != "0.1.0" {
			t.Errorf("%v (-want +got):\n%s", each["forrst"], diff)
		}
	}
	if document["describe"] != "0.1.0" || bare["discovery"] != "0.1.0" {
		t.Errorf("%v, %v", document["describe"], bare["discovery"])
	}
}

func TestDescribeOfAnUnknownFunctionOrVersion(t *testing.T) {
	f := newFixture(t)
	for given, want := range map[string][]string{
		`"function":"nothing"`:                        {"FUNCTION_NOT_FOUND /call/arguments/function"},
		`"function":"forrst.ping","version":"9.0.0"`:  {"VERSION_NOT_FOUND /call/arguments/version"},
		`"function":"forrst.ping","version":"newest"`: {"INVALID_ARGUMENTS /call/arguments/version"},
		`"function":"","include_schema":1`:            {"INVALID_ARGUMENTS /call/arguments/include_schema", "INVALID_ARGUMENTS /call/arguments/function"},
	} {
		status := 404
		if strings.HasPrefix(want[0], "INVALID") {
			status = 400
		}
		f.wantProblems(f.post(envelopeWith("forrst.describe", arguments(given), "")), status, want...)
	}
}

// describedFunction is what the tests below look at.
type describedFunction struct {
	Name, Summary string
	Result        struct{ Description string }
	Errors        []struct{ Code envelope.Code }
	Extensions    *struct{ Excluded []string }
}

func describedFunctions(f *fixture) []describedFunction {
	f.t.Helper()
	return decoded[struct{ Functions []describedFunction }](f.t, f.post(envelopeWith("forrst.describe", "", "")).Result).Functions
}

// TestFunctionsYAMLDescribesTheFunctions ties functions.yaml to the code: it describes every
// function that is served, and no other.
func TestFunctionsYAMLDescribesTheFunctions(t *testing.T) {
	f := newFixture(t)
	var served, described []string
	for _, name := range decoded[struct{ Functions []string }](t, f.post(envelopeWith("forrst.capabilities", "", "")).Result).Functions {
		got := f.post(envelopeWith("forrst.describe", arguments(`"function":"`+name+`"`), ""))
		preferred := decoded[describedFunction](t, got.Result).Name
		if got.status != 200 || preferred == "" {
			t.Errorf("%s is not described: %s", name, got.body)
		}
		if !slices.Contains(served, preferred) {
			served = append(served, preferred)
		}
	}
	for _, function := range describedFunctions(f) {
		described = append(described, function.Name)
		if function.Summary == "" || function.Result.Description == "" {
			t.Errorf("%s has no summary, or none of its result", function.Name)
		}
	}
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("described functions (-served +described):\n%s", diff)
	}
}

// What functions.yaml misspells or leaves out would be told as it stands.
func TestArgumentsAreDescribedWithoutMistakes(t *testing.T) {
	type argument struct {
		Name        string         `json:"name"`
		Required    *bool          `json:"required"`
		Description string         `json:"description"`
		Schema      *schema.Schema `json:"schema"`
	}
	f := newFixture(t)
	count := 0
	for _, function := range decoded[struct {
		Functions []struct {
			Name      string
			Arguments []json.RawMessage
		}
	}](t, f.post(envelopeWith("forrst.describe", "", "")).Result).Functions {
		for _, text := range function.Arguments {
			count++
			var described argument
			strict := json.NewDecoder(bytes.NewReader(text))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&described); err != nil || described.Name == "" || described.Required == nil || described.Schema == nil {
				t.Errorf("%s: %v in %s", function.Name, err, text)
			}
		}
	}
	if count < 30 {
		t.Errorf("there are %d arguments", count)
	}
}

func TestDescribedErrorsAreCodesOfTheProtocol(t *testing.T) {
	badRequest := []envelope.Code{envelope.ParseError, envelope.InvalidRequest, envelope.InvalidArguments}
	for _, function := range describedFunctions(newFixture(t)) {
		for _, problem := range function.Errors {
			// Codes that the protocol does not define have the status 400, too.
			if problem.Code.Status() == http.StatusBadRequest && !slices.Contains(badRequest, problem.Code) {
				t.Errorf("%s: %s is not a code of the protocol", function.Name, problem.Code)
			}
		}
	}
}

func TestFunctionsRefuseTheLockExtensionAsDescribed(t *testing.T) {
	f := newFixture(t)
	for _, function := range describedFunctions(f) {
		got := f.post(envelopeWith(function.Name, "", locked(`{"key":"k",`+ttl+`}`)))
		refuses := len(got.Errors) > 0 && got.Errors[0].Code == envelope.ExtensionNotApplicable
		if isDescribed := function.Extensions != nil; refuses != isDescribed {
			t.Errorf("%s refuses the lock extension: %t, and is described to: %t", function.Name, refuses, isDescribed)
		}
	}
}
