package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/schema"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// conforms is a validator for the part of JSON Schema that descriptions use.
func conforms(shape *schema.Schema, value any) bool {
	isAllowed := shape.Enum == nil || slices.Contains(shape.Enum, value)
	isOneOf := shape.AnyOf == nil || slices.ContainsFunc(shape.AnyOf, func(s schema.Schema) bool { return conforms(&s, value) })
	if !isAllowed || !isOneOf || !isOfType(shape.Type, value) {
		return false
	}
	switch value := value.(type) {
	case string:
		return textConforms(shape, value)
	case float64:
		return (shape.Minimum == nil || value >= float64(*shape.Minimum)) && (shape.Maximum == nil || value <= float64(*shape.Maximum)) &&
			(shape.ExclusiveMinimum == nil || value > float64(*shape.ExclusiveMinimum))
	case []any:
		return shape.Items == nil || !slices.ContainsFunc(value, func(element any) bool { return !conforms(shape.Items, element) })
	case map[string]any:
		return membersConform(shape, value)
	}
	return true
}

func textConforms(shape *schema.Schema, text string) bool {
	length := utf8.RuneCountInString(text)
	_, err := time.Parse(time.RFC3339, text)
	return length >= shape.MinLength && (shape.MaxLength == 0 || length <= shape.MaxLength) &&
		(shape.Format == "" || shape.Format == "date-time" && err == nil) &&
		regexp.MustCompile(shape.Pattern).MatchString(text)
}

func membersConform(shape *schema.Schema, members map[string]any) bool {
	for _, name := range shape.Required {
		if _, ok := members[name]; !ok {
			return false
		}
	}
	for name, property := range shape.Properties {
		if member, ok := members[name]; ok && !conforms(&property, member) {
			return false
		}
	}
	return true
}

func isOfType(wanted, value any) bool {
	number, isNumber := value.(float64)
	return wanted == nil || typeOf(value) == wanted || wanted == "integer" && isNumber && number == float64(int(number))
}

func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

func decoded[T any](tb testing.TB, text []byte) T {
	tb.Helper()
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
	return value
}

// described is the schema of arguments and result of a function.
type described struct {
	Versions []struct {
		Schema struct{ Arguments, Returns schema.Schema }
	}
}

func describedSchemas(f *fixture, function string) (arguments, returns *schema.Schema) {
	f.t.Helper()
	got := f.post(envelopeWith("forrst.describe", `,"arguments":{"function":"`+function+`"}`, ""))
	version := decoded[described](f.t, got.Result).Versions[0]
	return &version.Schema.Arguments, &version.Schema.Returns
}

func TestSchemaOfTheReasonForAForcedRelease(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = identified(func(*http.Request) string { return "system:serviceaccount:payments:root" })
	})
	shape, _ := describedSchemas(f, forceRelease)
	for _, sample := range []string{`"key":"lock:k"`, `"key":"lock:k","reason":""`, `"key":"lock:k","reason":" \n"`, `"key":"lock:k","reason":7`, `"key":"lock:k","reason":"r"`} {
		want := conforms(shape, decoded[any](t, []byte(`{`+sample+`}`)))
		got := f.post(envelopeWith(forceRelease, arguments(sample), ""))
		if isValid := got.Errors[0].Code == "LOCK_NOT_FOUND"; isValid != want {
			t.Errorf("{%s} conforms: %t, but %s", sample, want, got.body)
		}
	}
}

func TestSchemasOfArgumentsAgreeWithTheChecks(t *testing.T) {
	full := `"key":"lock:k","owner":"o"`
	for function, samples := range map[string][]string{
		"forrst.locks.release":      {full, `"key":"lock:k"`, `"owner":"o"`, `"key":"","owner":"o"`, `"key":7,"owner":"o"`, `"key":"k","owner":""`, `"key":"k","owner":[]`, ``},
		"forrst.locks.forceRelease": {`"key":"lock:k"`, `"key":"lock:k","reason":""`, `"key":"lock:k","reason":7`, `"key":{}`, ``},
		"forrst.locks.status":       {`"key":"lock:k"`, `"key":"lock:k","future":1`, `"key":false`, ``},
		wire.Renew:                  {full, full + `,"ttl":{"value":"1.5"}`, full + `,"ttl":{"value":0}`, full + `,"ttl":{"value":1,"unit":"weeks"}`, full + `,"ttl":{}`, full + `,"ttl":5`},
		wire.List:                   {``, `"owner":"o"`, `"owner":""`, `"owner":1`},
		wire.ListWaiters:            {``, `"key":"lock:k"`, `"key":""`, `"key":1`, `"limit":500`, `"limit":501`, `"limit":0`, `"limit":"x"`},
		wire.Acquire: {
			`"key":"a"`, `"key":"a","ttl":{"value":1,"unit":"day"}`, `"key":"a","scope":"global"`, `"key":"a","scope":"local"`, `"key":"a","scope":"function","function":"f"`,
			`"key":"a","block":{"value":0}`, `"key":"a","block":{"value":-1}`, `"key":"a","block":{"value":"x"}`, `"key":"a","reason":"r"`, `"ttl":{"value":1}`, `"key":""`,
			`"key":"a","priority":-2147483648`, `"key":"a","priority":2147483648`, `"key":"a","ttl":{"value":"0.0"}`, `"key":"a","ttl":{"value":"0.01"}`,
		},
		"forrst.health":   {``, `"component":"self"`, `"component":1`, `"component":""`, `"include_details":false`, `"include_details":0`},
		"forrst.describe": {``, `"function":"forrst.ping"`, `"function":""`, `"function":{}`, `"include_schema":"no"`},
		cancelName:        {`"token":"t"`, `"token":""`, `"token":"a.b"`, ``},
	} {
		f := newFixture(t)
		shape, _ := describedSchemas(f, function)
		for _, sample := range samples {
			want := conforms(shape, decoded[any](t, []byte(`{`+sample+`}`)))
			got := f.post(envelopeWith(function, arguments(sample), ""))
			if isValid := len(got.Errors) == 0 || got.Errors[0].Code != "INVALID_ARGUMENTS"; isValid != want {
				t.Errorf("%s: {%s} conforms: %t, but %s", function, sample, want, got.body)
			}
		}
	}
}

// anyHolder finds every object.
type anyHolder struct{}

func (anyHolder) Check(context.Context, string, rules.ValidReference) error { return nil }

func TestLengthsInSchemasAreThoseOfTheChecks(t *testing.T) {
	const holder = `"key":"k","holder_ref":{"api_version":%q,"kind":%q,"name":%q,"uid":%q}`
	for _, test := range []struct {
		function, arguments string
		longest             int
	}{
		{wire.Acquire, `"key":%q`, v1alpha1.MaxKeyBytes},
		{wire.Acquire, `"key":"k","owner":%q`, v1alpha1.MaxOwnerBytes},
		{wire.Acquire, `"key":"k","reason":%q`, 1024},
		{wire.Acquire, fmt.Sprintf(holder, strings.Repeat("g", 253)+"/%s", "Pod", "p", "u"), 63},
		{wire.Acquire, fmt.Sprintf(holder, "v1", "%s", "p", "u"), 63},
		{wire.Acquire, fmt.Sprintf(holder, "v1", "Pod", "%s", "u"), 253},
		{wire.Acquire, fmt.Sprintf(holder, "v1", "Pod", "p", "%s"), 128},
		{forceRelease, `"key":"lock:k","reason":%q`, 1024},
		{cancelName, `"token":%q`, 100},
	} {
		for length, want := range map[int]bool{test.longest: true, test.longest + 1: false} {
			f := newFixtureWith(t, func(config *testfacade.Settings) { config.Holders = anyHolder{} })
			shape, _ := describedSchemas(f, test.function)
			sample := fmt.Sprintf(test.arguments, strings.Repeat("a", length))
			isDescribed := conforms(shape, decoded[any](t, []byte(`{`+sample+`}`)))
			got := f.post(envelopeWith(test.function, arguments(sample), ""))
			isValid := len(got.Errors) == 0 || got.Errors[0].Code != "INVALID_ARGUMENTS"
			if isDescribed != want || isValid != want {
				t.Errorf("%s: %s with %d characters conforms: %t, want %t, but %s", test.function, test.arguments, length, isDescribed, want, got.body)
			}
		}
	}
}

func TestSchemasOfOptionsAgreeWithTheChecks(t *testing.T) {
	components := func(f *fixture) map[string]*schema.Schema {
		document := decoded[struct {
			Components struct {
				Schemas map[string]*schema.Schema
			}
		}](t, f.post(envelopeWith("forrst.describe", "", "")).Result)
		return document.Components.Schemas
	}
	for name, test := range map[string]struct {
		urn     string
		samples []string
	}{
		"AtomicLockOptions": {"urn:forrst:ext:atomicLock", []string{
			`"key":"k",` + ttl, `"key":"k"`, ttl, `"key":"",` + ttl, `"key":1,` + ttl, `"key":"k","ttl":{"value":0}`, `"key":"k","ttl":{"unit":"second"}`,
			`"key":"k",` + ttl + `,"scope":"any"`, `"key":"k",` + ttl + `,"scope":1`, `"key":"k",` + ttl + `,"auto_release":"yes"`, `"key":"k",` + ttl + `,"owner":""`,
			`"key":"k",` + ttl + `,"owner":"` + strings.Repeat("o", v1alpha1.MaxOwnerBytes) + `"`, `"key":"k",` + ttl + `,"owner":"` + strings.Repeat("o", v1alpha1.MaxOwnerBytes+1) + `"`,
			`"key":"` + strings.Repeat("k", v1alpha1.MaxKeyBytes) + `",` + ttl, `"key":"` + strings.Repeat("k", v1alpha1.MaxKeyBytes+1) + `",` + ttl,
			`"key":"k",` + ttl + `,"owner":1`, `"key":"k",` + ttl + `,"block":{"value":0}`, `"key":"k",` + ttl + `,"block":1`, `"key":"k",` + ttl + `,"future":1`,
		}},
		"CancellationOptions": {"urn:forrst:ext:cancellation", []string{`"token":"t"`, `"token":" "`, `"token":1`, ``}},
		"DeadlineOptions": {"urn:forrst:ext:deadline", []string{
			`"value":5,"unit":"second"`, `"value":5`, `"value":0`, `"value":"2034-02-03T04:05:06Z","unit":"iso8601"`, `"value":"soon","unit":"iso8601"`,
			`"deadline":"2034-02-03T04:05:06Z"`, `"deadline":"soon"`, `"timeout":{"value":1}`, `"timeout":{}`, ``,
		}},
		"TracingOptions": {"urn:forrst:ext:tracing", []string{``, `"trace_id":"t","span_id":"s","baggage":{}`}},
	} {
		f := newFixture(t)
		shape := components(f)[name]
		if shape == nil {
			t.Fatalf("no schema %s", name)
		}
		for _, sample := range test.samples {
			want := conforms(shape, decoded[any](t, []byte(`{`+sample+`}`)))
			got := f.post(envelopeWith(ping, "", fmt.Sprintf(`{"urn":%q,"options":{%s}}`, test.urn, sample)))
			if isValid := len(got.Errors) == 0; isValid != want {
				t.Errorf("%s: {%s} conforms: %t, but %s", name, sample, want, got.body)
			}
		}
	}
}

func TestResultsConformToTheirSchemas(t *testing.T) {
	f := newFixture(t)
	f.hold("held", "o", time.Hour)
	for _, call := range []struct{ function, arguments string }{
		{"forrst.ping", ``},
		{"forrst.health", ``},
		{"forrst.capabilities", ``},
		{"forrst.describe", ``},
		{"forrst.describe", `"function":"forrst.ping"`},
		{"forrst.locks.status", `"key":"lock:held"`},
		{"forrst.locks.status", `"key":"lock:free"`},
		{wire.Status, `"key":"lock:held"`},
		{wire.Status, `"key":"lock:free"`},
		{wire.Acquire, `"key":"a","owner":"o","scope":"function","function":"f","reason":"r"`},
		{wire.Renew, `"key":"lock:f:a","owner":"o"`},
		{wire.List, ``},
		{wire.ListWaiters, ``},
		{wire.Release, `"key":"lock:f:a","owner":"o"`},
		{"forrst.locks.forceRelease", `"key":"lock:held"`},
	} {
		_, shape := describedSchemas(f, call.function)
		got := f.post(envelopeWith(call.function, arguments(call.arguments), ""))
		if got.status != 200 || !conforms(shape, decoded[any](t, got.Result)) {
			t.Errorf("%s {%s}: %s does not conform to %s", call.function, call.arguments, got.body, envelope.MustEncode(shape))
		}
	}
}
