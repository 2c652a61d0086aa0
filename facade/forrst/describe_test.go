package forrst_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const discoveryDescribe = "urn:cline:forrst:ext:discovery:fn:describe"

// postBare returns the members of an answer that has no envelope.
func (f *fixture) postBare(body string) (map[string]any, *httptest.ResponseRecorder) {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, forrst.Path, strings.NewReader(body)))
	return decoded[map[string]any](f.t, recorder.Body.Bytes()), recorder
}

// described are versions of a function, one of which is hidden.
func describedFunctions() []forrst.Function {
	old, stable, next := function("acme.pay", result(`1`)), function("acme.pay", result(`2`)), function("acme.pay", result(`3`))
	old.Version, stable.Version, next.Version = "1.0.0", "2.1.0", "3.0.0-beta.1"
	stable.Names = append(stable.Names, "urn:acme:forrst:fn:pay")
	stable.Excluded = []string{envelope.AtomicLock}
	stable.Description = forrst.Description{
		Summary:     "Pays",
		Arguments:   []forrst.Argument{{Name: "amount", Required: true, Description: "How much", Schema: forrst.Schema{Type: "integer"}}},
		Returns:     forrst.Schema{Type: "boolean"},
		Errors:      []forrst.DescribedError{{Code: "ACME_BROKE", Message: "No money"}},
		SideEffects: []string{"create"},
	}
	hidden := function("acme.secret", result(`0`))
	hidden.Description.Hidden = true
	return []forrst.Function{old, stable, next, hidden}
}

func TestDescribeOfOneFunction(t *testing.T) {
	f := newFixture(t, describedFunctions()...)
	exclusion := map[string]any{"excluded": []any{"urn:cline:forrst:ext:atomic-lock", "urn:forrst:ext:atomic-lock", "urn:forrst:ext:atomicLock"}}
	schema := map[string]any{
		"arguments":   map[string]any{"type": "object", "required": []any{"amount"}, "properties": map[string]any{"amount": map[string]any{"type": "integer", "description": "How much"}}},
		"returns":     map[string]any{"type": "boolean"},
		"definitions": map[string]any{},
	}
	nothing := map[string]any{"arguments": map[string]any{"type": "object"}, "returns": map[string]any{}, "definitions": map[string]any{}}
	for _, name := range []string{"urn:cline:forrst:fn:describe", "forrst.describe"} {
		got := f.post(envelopeWith(name, arguments(`"function":"acme.pay"`), ""))
		result := decoded[map[string]any](t, got.Result)
		errors := decoded[struct{ Errors []any }](t, got.Result).Errors
		if diff := cmp.Diff(map[string]any{"code": "ACME_BROKE", "message": "No money"}, errors[len(errors)-1]); diff != "" || len(errors) != 11 {
			t.Errorf("%d errors (-want +got):\n%s", len(errors), diff)
		}
		delete(result, "errors")
		want := map[string]any{
			"function": "acme.pay", "name": "acme.pay", "description": "Pays", "summary": "Pays", "version": "2.1.0", "stability": "stable",
			"recommended_version": "2.1.0", "side_effects": []any{"create"}, "discoverable": true, "extensions": exclusion,
			"arguments": []any{map[string]any{"name": "amount", "required": true, "description": "How much", "schema": map[string]any{"type": "integer"}}},
			"result":    map[string]any{"schema": map[string]any{"type": "boolean"}, "collection": false},
			"versions": []any{
				map[string]any{"version": "1.0.0", "stability": "stable", "schema": nothing},
				map[string]any{"version": "2.1.0", "stability": "stable", "description": "Pays", "schema": schema, "extensions": exclusion},
				map[string]any{"version": "3.0.0-beta.1", "stability": "beta", "schema": nothing},
			},
		}
		if diff := cmp.Diff(want, result); diff != "" || got.status != 200 {
			t.Errorf("%s: status %d (-want +got):\n%s", name, got.status, diff)
		}
	}
}

func TestDescribeOfOneVersionWithoutSchemas(t *testing.T) {
	f := newFixture(t, describedFunctions()...)
	got := f.post(envelopeWith("forrst.describe", arguments(`"function":"acme.pay","version":"1","include_schema":false`), ""))
	result := decoded[map[string]any](t, got.Result)
	want := []any{map[string]any{"version": "1.0.0", "stability": "stable"}}
	if diff := cmp.Diff(want, result["versions"]); diff != "" || result["recommended_version"] != "2.1.0" || strings.Contains(got.body, `"schema"`) {
		t.Errorf("%s (-want +got):\n%s", got.body, diff)
	}
}

func TestDescribeWithoutEnvelope(t *testing.T) {
	f := newFixture(t, describedFunctions()...)
	single, recorder := f.postBare(envelopeWith(discoveryDescribe, arguments(`"function":"urn:acme:forrst:fn:pay"`), ""))
	if single["name"] != "acme.pay" || single["version"] != "2.1.0" || recorder.Code != 200 || recorder.Header().Get("X-Forrst-Request-Id") != "a-1" {
		t.Errorf("status %d, %v, %v", recorder.Code, recorder.Header(), single)
	}
	if diff := cmp.Diff([]any{"create"}, single["sideEffects"]); diff != "" || single["side_effects"] != nil || single["protocol"] != nil {
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
	f := newFixture(t, describedFunctions()...)
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
			"urn:k8s:forrst:ext:atomic-lock:fn:acquire 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:renew 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:release 1.0.0",
			"urn:k8s:forrst:ext:atomic-lock:fn:status 1.0.0", "urn:k8s:forrst:ext:atomic-lock:fn:list 1.0.0",
			"urn:cline:forrst:fn:ping 1.0.0", "urn:cline:forrst:fn:health 1.0.0", "urn:cline:forrst:fn:capabilities 1.0.0",
			"urn:cline:forrst:fn:describe 1.0.0", discoveryDescribe + " 1.0.0", cancelName + " 1.0.0",
			"acme.pay 1.0.0", "acme.pay 2.1.0", "acme.pay 3.0.0-beta.1",
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
	if got := f.post(envelopeWith("acme.secret", "", "")); string(got.Result) != "0" {
		t.Errorf("a hidden function: %s", got.body)
	}
	if got := f.post(envelopeWith("forrst.capabilities", "", "")); strings.Contains(got.body, "acme.secret") {
		t.Errorf("a hidden function is listed: %s", got.body)
	}
}

func TestDescribeOfWhatThereIsNot(t *testing.T) {
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

// TestEveryFunctionIsDescribed fails for a function that was added without a word.
func TestEveryFunctionIsDescribed(t *testing.T) {
	f := newFixture(t)
	document := decoded[struct {
		Functions []struct {
			Name, Summary string
			Result        struct{ Description string }
		}
	}](t, f.post(envelopeWith("forrst.describe", "", "")).Result)
	for _, function := range document.Functions {
		if function.Summary == "" || function.Result.Description == "" {
			t.Errorf("%s has no summary, or none of its result", function.Name)
		}
	}
}
