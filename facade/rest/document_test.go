package rest_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestTheDocumentIsOpenAPI(t *testing.T) {
	if err := theContract(t).document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	f := newFixture(t)
	got := f.do(http.MethodGet, "/openapi.json", "", "User", "nobody").want(http.StatusOK)
	if got.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(decode[struct{ OpenAPI string }](got).OpenAPI, "3.1.") {
		t.Errorf("%v: %.100s", got.header, got.body)
	}
	f.do(http.MethodHead, "/openapi.json", "").want(http.StatusOK)
	f.do(http.MethodGet, "/openapi.json", "", "Accept", "text/html").want(http.StatusNotAcceptable, "not-acceptable")
	f.do(http.MethodPut, "/openapi.json", "").want(http.StatusMethodNotAllowed, "method-not-allowed")
}

func TestTheDocumentHasTheBoundsOfTheService(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Limits, s.MaxBlock = rules.Limits{DefaultTTL: time.Second, MaxTTL: 90 * time.Second}, 7500*time.Millisecond
	})
	served, err := newContract([]byte(f.do(http.MethodGet, "/openapi.json", "").body))
	if err != nil {
		t.Fatal(err)
	}
	for schema, most := range map[string]float64{"TTLSeconds": 90, "WaitSeconds": 7.5} {
		if got := served.document.Components.Schemas[schema].Value.Max; got == nil || *got != most {
			t.Errorf("%s: maximum %v, want %v", schema, got, most)
		}
	}
	f.do(http.MethodPost, report, `{"ttl_seconds":91}`).want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodPost, report, `{"ttl_seconds":90,"wait_seconds":7.6}`).want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodPost, report, `{"ttl_seconds":90,"wait_seconds":7.5}`).want(http.StatusCreated)
}

// membersOf returns the JSON names of a type, with a question mark after those that may be absent.
func membersOf(kind reflect.Type) []string {
	var names []string
	for field := range kind.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		if options == "omitempty" {
			name += "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func propertiesOf(schema *openapi3.Schema) []string {
	var names []string
	for _, name := range slices.Collect(maps.Keys(schema.Properties)) {
		if !slices.Contains(schema.Required, name) {
			name += "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestNoMemberOfAnAnswerIsMissingInTheDocument(t *testing.T) {
	schemas := theContract(t).document.Components.Schemas
	lock := membersOf(reflect.TypeFor[wire.Lock]())
	lock = slices.DeleteFunc(lock, func(name string) bool { return name == "lock_token?" })
	for name, members := range map[string][]string{
		"Lock": lock, "Locks": membersOf(reflect.TypeFor[wire.Locks]()), "HolderRef": membersOf(reflect.TypeFor[wire.HolderRef]()),
		"Problem": membersOf(reflect.TypeFor[rest.Problem]()), "FieldError": membersOf(reflect.TypeFor[rest.FieldError]()),
	} {
		if diff := cmp.Diff(members, propertiesOf(schemas[name].Value)); diff != "" {
			t.Errorf("%s (-code +document):\n%s", name, diff)
		}
		if allowed := schemas[name].Value.AdditionalProperties.Has; allowed == nil || *allowed {
			t.Errorf("%s may have more members than the document says", name)
		}
	}
	if diff := cmp.Diff(membersOf(reflect.TypeFor[rest.Right]()), propertiesOf(schemas["Problem"].Value.Properties["right"].Value)); diff != "" {
		t.Errorf("right (-code +document):\n%s", diff)
	}
}

// readNames returns the first arguments, which must be texts, of all calls of methods with the names in
// the package.
func readNames(t *testing.T, methods ...string) []string {
	t.Helper()
	var names []string
	files, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // The package has no build tags.
	if err != nil {
		t.Fatal(err)
	}
	for path, file := range files["rest"].Files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			made, ok := node.(*ast.CallExpr)
			if !ok || len(made.Args) == 0 {
				return true
			}
			selector, ok := made.Fun.(*ast.SelectorExpr)
			text, isText := made.Args[0].(*ast.BasicLit)
			if ok && isText && slices.Contains(methods, selector.Sel.Name) {
				name, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestNoMemberOfARequestIsMissingInTheDocument(t *testing.T) {
	document := theContract(t).document
	var members []string
	for _, name := range []string{"Acquisition", "SetAcquisition", "Renewal", "HolderRef"} {
		members = append(members, slices.Collect(maps.Keys(document.Components.Schemas[name].Value.Properties))...)
	}
	var parameters []string
	for _, path := range document.Paths.Map() {
		for _, operation := range path.Operations() {
			for _, parameter := range operation.Parameters {
				if parameter.Value.In == "query" {
					parameters = append(parameters, parameter.Value.Name)
				}
			}
		}
	}
	want := slices.Concat(members, parameters)
	slices.Sort(want)
	got := readNames(t, "text", "Text", "Texts", "IsText", "RequiredText", "Seconds", "RequiredSeconds", "Integer", "Object", "flag", "checkFlag", "number")
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("(-document +code):\n%s", diff)
	}
}

// The examples are one story: alice acquires the lock, bob is refused, alice renews it, bob reads it, and alice releases it. Then
// she does the same with several locks.
func TestTheExamplesAreWhatTheServiceAcceptsAndAnswers(t *testing.T) {
	f := newFixture(t)
	document := theContract(t).document
	told := map[any]bool{}
	for _, step := range []struct {
		user, operation string
		status          int
	}{
		{"alice", "acquire", http.StatusCreated},
		{"bob", "acquire", http.StatusLocked},
		{"alice", "renew", http.StatusOK},
		{"bob", "read", http.StatusOK},
		{"alice", "release", http.StatusNoContent},
		{"alice", "acquireAll", http.StatusCreated},
		{"alice", "renewAll", http.StatusOK},
		{"alice", "releaseAll", http.StatusNoContent},
	} {
		path, method := placeOf(document, step.operation)
		item := document.Paths.Value(path)
		operation := item.GetOperation(method)
		headers, body := []string{"User", step.user}, ""
		if strings.HasPrefix(step.operation, "acquire") {
			headers = append(headers, "Idempotency-Key", "the-lock-token-of-the-examples")
		}
		query := url.Values{}
		parameters := map[string]*openapi3.Parameter{}
		for _, each := range slices.Concat(item.Parameters, operation.Parameters) {
			parameters[each.Value.Name] = each.Value
		}
		for name, each := range parameters {
			if each.Example == nil {
				continue
			}
			told[each] = true
			switch value := fmt.Sprint(each.Example); each.In {
			case openapi3.ParameterInPath:
				path = strings.ReplaceAll(path, "{"+name+"}", value)
			case openapi3.ParameterInQuery:
				for _, value := range each.Example.([]any) {
					query.Add(name, fmt.Sprint(value))
				}
			default:
				headers = append(headers, name, value)
			}
		}
		if operation.RequestBody != nil {
			sent := operation.RequestBody.Value.Content.Get("application/json")
			text, err := json.Marshal(sent.Example)
			if err != nil {
				t.Fatal(err)
			}
			told[sent], body = true, string(text)
		}
		if strings.HasPrefix(step.operation, "renew") {
			f.clock.Step(30 * time.Second)
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		got := f.do(method, path, body, headers...).want(step.status)
		if got.body == "" {
			continue
		}
		want := operation.Responses.Status(step.status).Value.Content.Get(got.header.Get("Content-Type"))
		told[want] = true
		if diff := cmp.Diff(want.Example, decode[any](got)); diff != "" {
			t.Errorf("%s by %s (-document +service):\n%s", step.operation, step.user, diff)
		}
	}
	if all := strings.Count(f.do(http.MethodGet, "/openapi.json", "").body, `"example":`); all != len(told) {
		t.Errorf("%d of %d examples are part of the story", len(told), all)
	}
}

// placeOf returns the path and the method of an operation.
func placeOf(document *openapi3.T, id string) (path, method string) {
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.OperationID == id {
				return path, method
			}
		}
	}
	return "", ""
}
