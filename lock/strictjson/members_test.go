package strictjson_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock/strictjson"
)

// told are faults, each as its path and its detail.
type told []string

func (t *told) AddFault(fault strictjson.Fault) {
	*t = append(*t, fault.Base+strings.Join(fault.Path, ".")+" "+fault.Detail)
}

func parse(t *testing.T, text string) (*strictjson.Members, *told) {
	t.Helper()
	found := &told{}
	members, err := strictjson.Parse([]byte(text), "", found)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &members, found
}

func TestMembersAreReadByType(t *testing.T) {
	const outOfInteger = "must be an integer of 32 bits, such as 100 or -5"
	text := func(m *strictjson.Members) any { return m.Text("a") }
	integer := func(m *strictjson.Members) any { return m.Integer("a") }
	positive := func(m *strictjson.Members) any { return m.PositiveInteger("a") }
	seconds := func(m *strictjson.Members) any { return m.RequiredSeconds("a", time.Second, time.Minute) }
	boolean := func(m *strictjson.Members) any { return m.Bool("a", true) }
	raw := func(m *strictjson.Members) any { return string(m.Raw("a")) }
	for _, test := range []struct {
		value string
		read  func(*strictjson.Members) any
		want  any
		fault string
	}{
		{`"x\u00e9\n\ud83d\ude00"`, text, "xé\n😀", ""}, {`""`, text, "", ""}, {`null`, text, "", ""}, {`1`, text, "", "must be a string"},
		{`5`, integer, int32(5), ""}, {`5.0`, integer, int32(5), ""}, {`1e1`, integer, int32(10), ""}, {`-2147483648`, integer, int32(-2147483648), ""},
		{`null`, integer, int32(0), ""}, {`2147483648`, integer, int32(0), outOfInteger}, {`5.5`, integer, int32(0), outOfInteger},
		{`"5"`, integer, int32(0), outOfInteger}, {`1e400`, integer, int32(0), outOfInteger}, {`true`, integer, int32(0), outOfInteger}, {`[5]`, integer, int32(0), outOfInteger},
		{`9223372036854775807`, positive, int64(9223372036854775807), ""}, {`2147483647.0`, positive, int64(2147483647), ""}, {`null`, positive, int64(0), ""},
		{`1e19`, positive, int64(0), "must be an integer of at least 1"}, {`0`, positive, int64(0), "must be an integer of at least 1"},
		{`1.5`, seconds, 1500 * time.Millisecond, ""}, {`60.1`, seconds, time.Duration(0), "must be at least 1 and at most 60 seconds"},
		{`1e999`, seconds, time.Duration(0), "must be at least 1 and at most 60 seconds"}, {`"5"`, seconds, time.Duration(0), "must be a number of seconds"},
		{`null`, seconds, time.Duration(0), "is required"},
		{`false`, boolean, false, ""}, {`null`, boolean, true, ""}, {`"false"`, boolean, true, "must be true or false"},
		{` { "n" : 1.00e400, "<":[ ] } `, raw, `{ "n" : 1.00e400, "<":[ ] }`, ""}, {`null`, raw, "", ""},
	} {
		members, found := parse(t, "{\n \"a\" :"+test.value+"}")
		got := test.read(members)
		var want told
		if test.fault != "" {
			want = told{"a " + test.fault}
		}
		if diff := cmp.Diff(test.want, got); diff != "" || !slices.Equal(want, *found) {
			t.Errorf("%s: faults %q, want %q (-want +got):\n%s", test.value, *found, want, diff)
		}
	}
}

// Parsers disagree about which of two members counts.
func TestAMemberThatIsReadMustNotBeGivenTwice(t *testing.T) {
	members, found := parse(t, `{"a":1,"\u0061":2,"b":3,"b":4,"A":5}`)
	for range 2 { // Some members are looked at more than once.
		if members.Require("a"); members.Raw("a") != nil || members.Text("a") != "" || !members.Has("a") {
			t.Error("one of two counts")
		}
	}
	if diff := cmp.Diff(told{"a must not be given twice"}, *found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// values are those of faults.
type values []string

func (v *values) AddFault(fault strictjson.Fault) { *v = append(*v, string(fault.Value)) }

func TestNoLongValueIsTold(t *testing.T) {
	for length, isTold := range map[int]bool{strictjson.MaxToldValue: true, strictjson.MaxToldValue + 1: false} {
		sent, want, found := strings.Repeat("1", length), "", &values{}
		if isTold {
			want = sent
		}
		members, err := strictjson.Parse([]byte(`{"a":`+sent+`}`), "", found)
		if members.Text("a"); err != nil || !slices.Equal(values{want}, *found) {
			t.Errorf("%d bytes: %q, %v", length, *found, err)
		}
	}
}

func TestOthersAreRefused(t *testing.T) {
	members, found := parse(t, `{"a":{"b":{},"c/d":1},"e":[],"A":null,"`+strings.Repeat("é", 1000)+`":1}`)
	nested := members.Object("a")
	nested.Object("b").RequiredText("x")
	nested.RefuseOthers()
	if members.Object("e") != nil || members.Object("f") != nil {
		t.Error("objects that are none")
	}
	members.RefuseOthers()
	const unknown = " is not a member of this request"
	want := told{"a.b.x is required", "a.c/d" + unknown, "e must be an object", "A" + unknown, strings.Repeat("é", 64) + unknown}
	if diff := cmp.Diff(want, *found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsNoObject(t *testing.T) {
	for _, text := range []string{`[]`, ` [{"a":1}]`, `null`, `1`, `"{}"`, `true`} {
		if members, err := strictjson.Parse([]byte(text), "", &told{}); !errors.Is(err, strictjson.ErrNoObject) || members.Raw("a") != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSyntaxErrorsNameThePlaceAndNoSecret(t *testing.T) {
	for text, want := range map[string]strictjson.SyntaxError{
		`{"a":{"b/":[1,"\ud800secret"]}}`: {Position: 15, Pointer: "/a/b~1/1", Message: "invalid surrogate pair in a string"},
		`{"owner":"\u00secret"}`:          {Position: 10, Pointer: "/owner", Message: "invalid escape sequence in a string"},
		`{"owner":"secret`:                {Position: 16, Message: "unexpected end of JSON"},
		`{"a":1}{`:                        {Position: 7, Message: "unexpected data after the end of the document"},
		"\ufeff{}":                        {Message: "the text must not begin with a byte order mark"},
		``:                                {Message: "unexpected end of JSON"},
	} {
		_, err := strictjson.Parse([]byte(text), "", &told{})
		if got, ok := errors.AsType[*strictjson.SyntaxError](err); !ok || *got != want {
			t.Errorf("%s: %#v, want %#v", text, err, want)
		}
	}
}

// A body may be as large as a door permits, and be wrong in as many places as it has bytes.
func TestLargeTextsTakeNoMoreMemoryThanTheyHaveMembers(t *testing.T) {
	const most = 100
	for name, text := range map[string]string{
		"elements": "[" + strings.Repeat(`"a",`, 100_000) + "1]",
		"a value":  `{"a":[` + strings.Repeat(`{"b":[]},`, 100_000) + "1]}",
		"members":  "{" + strings.Repeat(`"a":1,`, 100_000) + `"b":1}`,
	} {
		if allocations := testing.AllocsPerRun(1, func() { _, _ = strictjson.Parse([]byte(text), "", &told{}) }); allocations > most {
			t.Errorf("%s: %.0f allocations", name, allocations)
		}
	}
}

func TestValuesArePartsOfTheText(t *testing.T) {
	text := []byte(`[ 1.0, {"a" : "b"} ,"c"]`)
	var got []string
	err := strictjson.Each(text, func(_, value []byte) { got = append(got, string(value)) })
	if diff := cmp.Diff([]string{`1.0`, `{"a" : "b"}`, `"c"`}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
