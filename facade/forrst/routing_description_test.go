package forrst_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func newDescribedRouting(t *testing.T) *fixture {
	t.Helper()
	table, err := routes.Parse([]byte("routes:\n- functions: [shop.pay, 'shop.*', own]\n  url: http://a\n- functions: [bill]\n  url: http://b\n"))
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureWith(t, func(config *testfacade.Settings) {
		config.Routing = &forrst.Routing{Routes: table, Client: forward.NewClient(nil)}
	}, function("own", result(`1`)))
}

func TestCapabilitiesTellOfRoutedFunctions(t *testing.T) {
	f := newDescribedRouting(t)
	got := decoded[struct {
		Functions []string `json:"functions"`
		Prefixes  []string `json:"function_prefixes"`
	}](t, f.post(envelopeWith("forrst.capabilities", "", "")).Result)
	if rest := got.Functions[slices.Index(got.Functions, "own"):]; !slices.Equal(rest, []string{"own", "shop.pay", "bill"}) || !slices.Equal(got.Prefixes, []string{"shop.*"}) {
		t.Errorf("functions %q, prefixes %q", got.Functions, got.Prefixes)
	}
}

func TestRoutedFunctionsAreDescribed(t *testing.T) {
	f := newDescribedRouting(t)
	type document struct {
		Functions []map[string]any `json:"functions"`
	}
	bare, _ := f.postBare(envelopeWith(discoveryDescribe, "", ""))
	for form, functions := range map[string][]map[string]any{
		"enveloped": decoded[document](t, f.post(envelopeWith("forrst.describe", "", "")).Result).Functions,
		"bare":      anyMaps(bare["functions"]),
	} {
		var names []string
		for _, each := range functions {
			if each["version"] == nil {
				names = append(names, each["name"].(string))
			}
		}
		if !slices.Equal(names, []string{"shop.pay", "bill"}) {
			t.Errorf("%s: functions of other services are %q", form, names)
		}
	}

	for _, name := range []string{"bill", "shop.anything"} {
		enveloped := decoded[map[string]any](t, f.post(envelopeWith("forrst.describe", arguments(`"function":"`+name+`","version":"2.0.0"`), "")).Result)
		single, _ := f.postBare(envelopeWith(discoveryDescribe, arguments(`"function":"`+name+`"`), ""))
		const summary = "Runs in another service, which may describe it"
		if len(anyMaps(enveloped["errors"])) != 11 || len(anyMaps(single["errors"])) != 11 {
			t.Errorf("%s: errors %v, %v", name, enveloped["errors"], single["errors"])
		}
		delete(enveloped, "errors")
		delete(single, "errors")
		want := map[string]any{"name": name, "summary": summary, "discoverable": true}
		if diff := cmp.Diff(want, single); diff != "" {
			t.Errorf("bare (-want +got):\n%s", diff)
		}
		want["function"], want["description"], want["versions"] = name, summary, []any{}
		if diff := cmp.Diff(want, enveloped); diff != "" {
			t.Errorf("enveloped (-want +got):\n%s", diff)
		}
	}
	f.wantProblems(f.post(envelopeWith("forrst.describe", arguments(`"function":"nothing"`), "")), 404, "FUNCTION_NOT_FOUND /call/arguments/function")
}

// anyMaps returns the objects in a decoded array.
func anyMaps(array any) []map[string]any {
	var objects []map[string]any
	elements, _ := array.([]any)
	for _, element := range elements {
		object, _ := element.(map[string]any)
		objects = append(objects, object)
	}
	return objects
}
