package forrst_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/test/support/schema"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// drawValue draws the text of a value that the schema accepts, in one of its spellings. It knows the keywords that the
// descriptions of arguments and options have.
func drawValue(t *rapid.T, shape *schema.Schema) string {
	switch {
	case len(shape.AnyOf) > 0:
		return drawValue(t, &shape.AnyOf[rapid.IntRange(0, len(shape.AnyOf)-1).Draw(t, "which")])
	case len(shape.Enum) > 0:
		return string(envelope.MustEncode(rapid.SampledFrom(shape.Enum).Draw(t, "one")))
	case isDuration(shape):
		return drawDuration(t, shape)
	}
	switch shape.Type {
	case "boolean":
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "boolean")
	case "integer":
		return drawInteger(t, shape)
	case "string":
		text := drawText(t, shape)
		if rapid.Bool().Draw(t, "escaped") {
			return escaped(text)
		}
		return string(envelope.MustEncode(text))
	case "object":
		members := drawMembers(t, shape)
		return "{" + joined(members) + "}"
	}
	t.Fatalf("the drawer knows no type %v", shape.Type)
	return ""
}

// escaped writes each character of a string as an escape.
func escaped(text string) string {
	var quoted strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		fmt.Fprintf(&quoted, `\u%04x`, unit)
	}
	return `"` + quoted.String() + `"`
}

// drawMembers draws an object: the text of each of its members.
func drawMembers(t *rapid.T, shape *schema.Schema) map[string]string {
	members := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(shape.Properties)) {
		property := shape.Properties[name]
		if slices.Contains(shape.Required, name) || rapid.Bool().Draw(t, "has "+name) {
			members[name] = drawValue(t, &property)
		}
	}
	return members
}

// joined writes the members of an object.
func joined(members map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		texts = append(texts, fmt.Sprintf("%q:%s", name, members[name]))
	}
	return strings.Join(texts, ",")
}

// drawInteger draws one of the bounds or one between them. An integer beyond 2⁵³ is not the same to all readers of JSON.
func drawInteger(t *rapid.T, shape *schema.Schema) string {
	low, high := -1<<53+1, 1<<53-1
	if shape.Minimum != nil {
		low = *shape.Minimum
	}
	if shape.Maximum != nil {
		high = *shape.Maximum
	}
	number := strconv.Itoa(rapid.OneOf(rapid.IntRange(low, high), rapid.SampledFrom([]int{low, high})).Draw(t, "integer"))
	return number + rapid.SampledFrom([]string{"", ".0", "e0", "E+0"}).Draw(t, "spelling")
}

// drawText draws a text. Where 512 is the most, the description says in words that bytes count.
func drawText(t *rapid.T, shape *schema.Schema) string {
	most := shape.MaxLength
	if most == 0 {
		most = 1 << 10
	}
	var texts *rapid.Generator[string]
	switch {
	case shape.Format == "date-time":
		seconds := rapid.Int64Range(0, time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC).Unix()).Draw(t, "seconds")
		zone := time.FixedZone("", 60*rapid.IntRange(-12*60, 14*60).Draw(t, "zone"))
		return time.Unix(seconds, rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).In(zone).Format(time.RFC3339Nano)
	case shape.Pattern != "":
		texts = rapid.StringMatching(shape.Pattern)
	default:
		texts = rapid.OneOf(
			rapid.StringN(shape.MinLength, min(most, shape.MinLength+20), -1), rapid.StringN(shape.MinLength, most, most),
			rapid.Just(strings.Repeat("a", most)),
		)
	}
	return texts.Filter(func(text string) bool {
		length := utf8.RuneCountInString(text)
		return length >= shape.MinLength && length <= most && (most != v1alpha1.MaxKeyBytes || max(len(text), len(norm.NFC.String(text))) <= most)
	}).Draw(t, "text")
}

// longest bounds the durations that are drawn: what is too long the descriptions say in words, since it depends on the unit.
const longest = 24 * time.Hour

func isDuration(shape *schema.Schema) bool {
	_, hasValue := shape.Properties["value"]
	return hasValue && shape.Properties["unit"].Default != nil
}

func drawDuration(t *rapid.T, shape *schema.Schema) string {
	lengths := map[string]time.Duration{
		"millisecond": time.Millisecond, "second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	}
	unit, member := time.Second, ""
	if rapid.Bool().Draw(t, "has unit") {
		name, _ := rapid.SampledFrom(shape.Properties["unit"].Enum).Draw(t, "unit").(string)
		unit, member = lengths[name], fmt.Sprintf(`,"unit":%q`, name)
	}
	most, values := float64(longest)/float64(unit), shape.Properties["value"].AnyOf
	value := &values[rapid.IntRange(0, len(values)-1).Draw(t, "which")]
	if value.Type == "string" {
		text := rapid.StringMatching(value.Pattern).Filter(func(text string) bool {
			number, err := strconv.ParseFloat(text, 64)
			return err == nil && number <= most
		}).Draw(t, "decimal")
		return fmt.Sprintf(`{"value":%q%s}`, text, member)
	}
	whole := rapid.Map(rapid.IntRange(0, int(most)), func(number int) float64 { return float64(number) })
	number := rapid.OneOf(rapid.Float64Range(0, most), whole, rapid.Just(most)).Filter(func(number float64) bool {
		return conforms(value, number)
	}).Draw(t, "number")
	form := rapid.SampledFrom([]byte("fgeE")).Draw(t, "form")
	return fmt.Sprintf(`{"value":%s%s}`, strconv.FormatFloat(number, form, -1, 64), member)
}

// newDrawnFixture returns a façade at which the caller may do everything. It is a Pod, with which a lock ends that has a
// delay and names no object; each object that it names is there.
func newDrawnFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, func(config *testfacade.Settings) {
		config.Holders, config.MaxBlock = anyHolder{}, longest
		config.Access = &fakeAccess{who: func(*http.Request) (user.Info, error) {
			return &user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":worker", Extra: map[string][]string{
				serviceaccount.PodNameKey: {callerPod.Name}, serviceaccount.PodUIDKey: {string(callerPod.UID)},
			}}, nil
		}}
	})
}

// forget frees all locks, and drops what was recorded.
func (f *fixture) forget() {
	for _, left := range f.locks.All() {
		_ = f.locks.ForceRelease(f.t.Context(), left.Namespace, left.Spec.FullKey(), "") // It may have expired.
	}
	f.locks.Calls()
	f.log.Reset()
}

// drawArguments draws arguments of a function. What the description says in words is seen to: which arguments go together, and
// which have to come from an answer.
func drawArguments(t *rapid.T, shape *schema.Schema) map[string]string {
	members := drawMembers(t, shape)
	for _, name := range []string{"continue", "component", "version"} {
		delete(members, name)
	}
	if _, hasScope := shape.Properties["scope"]; hasScope {
		if _, hasFunction := members["function"]; hasFunction {
			members["scope"] = `"` + wire.FunctionScope + `"`
		} else {
			delete(members, "scope")
		}
	}
	return members
}

// TestWhatTheDescriptionsAcceptIsAccepted draws arguments from the schemas that the describe function answers with. The lock is
// free.
func TestWhatTheDescriptionsAcceptIsAccepted(t *testing.T) {
	f := newDrawnFixture(t)
	shapes := map[string]*schema.Schema{}
	for _, function := range []string{
		wire.Acquire, wire.Renew, wire.Release, wire.Status, wire.List, wire.ListWaiters, wire.ForceRelease, release, status, cancelName,
		"forrst.health", "forrst.describe",
	} {
		shapes[function], _ = describedSchemas(f, function)
	}
	call := func(t *rapid.T, function string, members map[string]string) answer {
		if !conforms(shapes[function], decoded[any](f.t, []byte("{"+joined(members)+"}"))) {
			t.Fatalf("%s: drew {%s}, which does not conform", function, joined(members))
		}
		return f.post(envelopeWith(function, arguments(joined(members)), ""))
	}
	rapid.Check(t, func(t *rapid.T) {
		f.forget()
		drawn := drawArguments(t, shapes[wire.Acquire])
		got := call(t, wire.Acquire, drawn)
		if got.status != http.StatusOK {
			t.Fatalf("%s {%s}: %s", wire.Acquire, joined(drawn), got.body)
		}
		granted := decoded[wire.Acquired](f.t, got.Result)
		for _, function := range []string{wire.Renew, wire.Status, wire.Release} {
			drawn := drawArguments(t, shapes[function])
			drawn["key"], drawn["owner"] = string(envelope.MustEncode(granted.FullKey)), string(envelope.MustEncode(granted.Owner))
			delete(drawn, "fencing_token") // There is one that is right.
			if got := call(t, function, drawn); got.status != http.StatusOK {
				t.Fatalf("%s {%s}: %s", function, joined(drawn), got.body)
			}
		}
		for _, function := range slices.Sorted(maps.Keys(shapes)) {
			if function == wire.Acquire {
				continue
			}
			drawn := drawArguments(t, shapes[function])
			got := call(t, function, drawn)
			if len(got.Errors) > 0 && got.Errors[0].Code == "INVALID_ARGUMENTS" {
				t.Fatalf("%s {%s}: %s", function, joined(drawn), got.body)
			}
		}
	})
}

// TestWhatTheDescriptionsAcceptIsAcceptedAsOptions does the same with the options of extensions.
func TestWhatTheDescriptionsAcceptIsAcceptedAsOptions(t *testing.T) {
	f := newDrawnFixture(t)
	document := decoded[struct {
		Components struct{ Schemas map[string]*schema.Schema }
	}](t, f.post(envelopeWith("forrst.describe", "", "")).Result)
	rapid.Check(t, func(t *rapid.T) {
		f.forget()
		for _, of := range [][2]string{
			{"AtomicLockOptions", "urn:forrst:ext:atomicLock"}, {"CancellationOptions", "urn:forrst:ext:cancellation"},
			{"DeadlineOptions", "urn:forrst:ext:deadline"}, {"TracingOptions", "urn:forrst:ext:tracing"},
		} {
			name, urn := of[0], of[1]
			shape := document.Components.Schemas[name]
			options := drawValue(t, shape)
			if !conforms(shape, decoded[any](f.t, []byte(options))) {
				t.Fatalf("%s: drew %s, which does not conform", name, options)
			}
			got := f.post(envelopeWith(ping, "", fmt.Sprintf(`{"urn":%q,"options":%s}`, urn, options)))
			if len(got.Errors) > 0 && got.Errors[0].Code != "DEADLINE_EXCEEDED" {
				t.Fatalf("%s %s: %s", name, options, got.body)
			}
		}
	})
}
