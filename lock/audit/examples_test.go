package audit_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

const page = "../../docs/audit.md"

// examples are the records of a day, as docs/audit.md shows them.
func examples() []audit.Record {
	const worker, nightly, admin = "system:serviceaccount:payments:worker", "system:serviceaccount:payments:nightly", "carol@example.com"
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	grant := func(holder, owner string, version string, after time.Duration) *v1alpha1.Lock {
		acquired := began.Add(after)
		return &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "billing--report", UID: "0b9d6c1e-5d2f-4b0e-9f57-7d1f0f3c2a11", ResourceVersion: version},
			Spec: v1alpha1.LockSpec{
				Key: "billing:report", Scope: v1alpha1.ScopeGlobal, Owner: owner, Holder: holder,
				AcquireTime: new(v1alpha1.NewTimestamp(acquired)), RenewTime: new(v1alpha1.NewTimestamp(acquired)),
				ExpireTime: new(v1alpha1.NewTimestamp(acquired.Add(30 * time.Second))),
			},
		}
	}
	first := grant(worker, "a", "48211", 0)
	renewed := grant(worker, "a", "48230", 0)
	renewed.Spec.FencingToken = new(int64(48211))
	renewed.Spec.RenewTime = new(v1alpha1.NewTimestamp(began.Add(10 * time.Second)))
	renewed.Spec.ExpireTime = new(v1alpha1.NewTimestamp(began.Add(40 * time.Second)))
	second := grant(nightly, "b", "48251", 20*time.Second)
	third := grant(worker, "c", "48302", 55*time.Second)

	handedOn := audit.Ended(audit.Released, audit.PassedOn, audit.Facade, worker, renewed, began.Add(20*time.Second))
	lapsed := audit.Ended(audit.Expired, audit.Replaced, audit.Facade, worker, second, began.Add(55*time.Second))
	forced := audit.Ended(audit.ForceReleased, audit.ByForce, audit.Admission, admin, third, began.Add(62500*time.Millisecond))
	forced.Message = "worker-0 hangs, see incident 4711"
	forced.Admitted = true
	foreign := audit.Record{
		Schema: audit.Schema, Time: v1alpha1.NewTimestamp(began.Add(2 * time.Minute)), Event: audit.Refused, Reason: audit.WrongOwner, Via: audit.Facade,
		Actor: nightly, Namespace: "payments", Lock: "billing--report", Key: "billing:report", Operation: "release", Door: "forrst",
		Message: "Lock is owned by a different process",
	}
	omitted := audit.Record{
		Schema: audit.Schema, Time: v1alpha1.NewTimestamp(began.Add(130 * time.Second)), Event: audit.Omitted, Reason: audit.Invalid, Via: audit.Admission,
		Actor: "system:serviceaccount:shop:deployer", OmittedEvent: audit.Refused, Cause: audit.TooManyRefusals,
		Count: 1940, Since: v1alpha1.NewTimestamp(began.Add(2 * time.Minute)),
	}
	refused := audit.Of(audit.Refused, audit.Admission, second)
	refused.Time, refused.Actor, refused.Operation, refused.Reason = v1alpha1.NewTimestamp(began.Add(21*time.Second)), admin, "update", audit.Conflict
	refused.Message = `locks.forrst.dev "billing--report" is forbidden: lock:billing:report is held by "` + nightly + `"`
	object := &audit.Object{Group: "apps", Resource: "deployments", Name: "billing"}
	admitted := audit.Of(audit.WriteAdmitted, audit.Admission, third)
	admitted.Time, admitted.Actor, admitted.Operation, admitted.Object = v1alpha1.NewTimestamp(began.Add(56*time.Second)), worker, "update", object
	guarded := audit.Of(audit.WriteRefused, audit.Admission, third)
	guarded.Time, guarded.Actor, guarded.Operation, guarded.Object = v1alpha1.NewTimestamp(began.Add(57*time.Second)), admin, "delete", object
	guarded.Reason = audit.Guarded
	guarded.Message = `it is guarded by the lock "billing--report", key lock:billing:report, which "` + worker + `" has held since 2026-11-20T10:00:55.000000Z and holds until 2026-11-20T10:01:25.000000Z`
	return []audit.Record{
		audit.Begun(audit.Granted, audit.Facade, first),
		audit.Prolonged(audit.Facade, worker, nil, renewed),
		handedOn, audit.Begun(audit.HandedOn, audit.Facade, second),
		refused,
		lapsed, audit.Begun(audit.TakenOver, audit.Facade, third),
		forced,
		admitted, guarded,
		foreign, omitted,
	}
}

func TestExamplesOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for index, block := range strings.Split(string(text), "```") {
		if block, isJSON := strings.CutPrefix(block, "json\n"); isJSON && index%2 == 1 {
			shown = append(shown, strings.Split(strings.TrimSpace(block), "\n")...)
		}
	}
	var want []string
	for _, record := range examples() {
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(record); err != nil {
			t.Fatal(err)
		}
		want = append(want, strings.TrimSpace(line.String()))
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the examples of %s (-want +got):\n%s", page, diff)
	}
	for _, line := range shown {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&audit.Record{}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The tables of the page must list each field and each value.
func TestAuditPageListsEveryFieldAndValue(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for field := range reflect.TypeFor[audit.Record]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	for _, name := range append(names, values(t)...) {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("%s has no row for %q", page, name)
		}
	}
}

// values returns the values of Event, Reason and Via.
func values(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	if len(values) < 20 {
		t.Fatalf("found only %v", values)
	}
	return values
}

func TestBounded(t *testing.T) {
	for text, want := range map[string]string{
		"short":                        "short",
		"bad \xff":                     "bad \uFFFD",
		strings.Repeat("é", 600):       strings.Repeat("é", 512),
		"x" + strings.Repeat("é", 600): "x" + strings.Repeat("é", 511),
	} {
		if got := audit.Bounded(text); got != want {
			t.Errorf("%d bytes of %q, want %d", len(got), got, len(want))
		}
	}
}

func TestRecordsAreBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	if cut := audit.Bounded(long); unsafe.StringData(cut) == unsafe.StringData(long) {
		t.Error("a cut text keeps all of it in memory")
	}
	record := audit.Record{Object: &audit.Object{}}
	for _, texts := range []reflect.Value{reflect.ValueOf(&record).Elem(), reflect.ValueOf(record.Object).Elem()} {
		for _, text := range texts.Fields() {
			if text.Kind() == reflect.String {
				text.SetString(long)
			}
		}
	}
	// These are never taken from a request.
	record.Schema, record.Event, record.Reason, record.Via, record.OmittedEvent, record.Cause = "", "", "", "", "", ""
	original := record.Object
	record.Bound()
	line, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > 13*audit.MaxNameBytes+4*audit.MaxMessageBytes || !utf8.Valid(line) {
		t.Errorf("%d bytes, valid: %t", len(line), utf8.Valid(line))
	}
	if want := strings.Repeat("é", 254) + "…"; record.Actor != want {
		t.Errorf("the actor is %q, want %q", record.Actor, want)
	}
	if original.Name != long {
		t.Error("the object, which other records may have, was changed")
	}
	record.Actor = "\xff" + strings.Repeat("\x80", 1000)
	record.Bound()
	if len(record.Actor) > audit.MaxNameBytes {
		t.Errorf("an actor of %d bytes", len(record.Actor))
	}
}

func TestHeldIsNeverNegative(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	lock := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{AcquireTime: new(v1alpha1.NewTimestamp(now)), ExpireTime: new(v1alpha1.NewTimestamp(now.Add(time.Minute)))}}
	for at, want := range map[time.Duration]float64{-time.Second: 0, 0: 0, time.Second: 1, time.Hour: 60} {
		if got := *audit.Ended(audit.Released, audit.ByOwner, audit.Facade, "", lock, now.Add(at)).HeldSeconds; got != want {
			t.Errorf("after %s it was held for %gs, want %gs", at, got, want)
		}
	}
}
