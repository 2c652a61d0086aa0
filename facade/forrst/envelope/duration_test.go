package envelope_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const day = 24 * time.Hour

// read reads the duration that is the only member of an object.
func read(raw string, limits envelope.DurationLimits) (*envelope.Duration, envelope.Errors) {
	var problems envelope.Errors
	fields, _ := envelope.ReadObject(json.RawMessage(`{"ttl":`+raw+`}`), "/o", &problems)
	return fields.RequiredDuration("ttl", limits), problems
}

func TestDurationIsRoundedUpToMilliseconds(t *testing.T) {
	cases := map[string]time.Duration{
		`{"value":90,"unit":"second"}`:                                     90 * time.Second,
		`{"value":90}`:                                                     90 * time.Second,
		`{"value":90,"unit":null}`:                                         90 * time.Second,
		`{"unit":"millisecond","value":1}`:                                 time.Millisecond,
		`{"value":2,"unit":"minute"}`:                                      2 * time.Minute,
		`{"value":24,"unit":"hour"}`:                                       day,
		`{"value":1,"unit":"day"}`:                                         day,
		`{"value":"30","unit":"second"}`:                                   30 * time.Second,
		`{"value":"0.5"}`:                                                  500 * time.Millisecond,
		`{"value":0.5,"unit":"second"}`:                                    500 * time.Millisecond,
		`{"value":1.1,"unit":"second"}`:                                    1100 * time.Millisecond,
		`{"value":0.0001}`:                                                 time.Millisecond,
		`{"value":1.0001}`:                                                 1001 * time.Millisecond,
		`{"value":0.3,"unit":"millisecond"}`:                               time.Millisecond,
		`{"value":3e1}`:                                                    30 * time.Second,
		`{"value":2.5E-1}`:                                                 250 * time.Millisecond,
		`{"value":86400.000}`:                                              day,
		`{"value":0.00001e+5}`:                                             time.Second,
		`{"value":1e-999999999999999999999}`:                               time.Millisecond,
		`{"value":1.` + strings.Repeat("0", 5000) + `1}`:                   1001 * time.Millisecond,
		`{"value":1.` + strings.Repeat("0", 5000) + `}`:                    time.Second,
		`{"value":0.` + strings.Repeat("0", 5000) + `1e5000}`:              100 * time.Millisecond,
		`{"v":1,"value":1,"unit":"second","iso8601":"PT1S","v":"ignored"}`: time.Second,
	}
	for raw, want := range cases {
		got, problems := read(raw, envelope.DurationLimits{Max: day})
		if problems != nil || got.Length != want {
			t.Errorf("%.80s: %v, %v; want %s", raw, got, problems, want)
		}
	}
}

func TestDurationRefuses(t *testing.T) {
	cases := map[string][]string{
		`null`:                              {"/o/ttl"},
		`30`:                                {"/o/ttl"},
		`"30s"`:                             {"/o/ttl"},
		`"PT30S"`:                           {"/o/ttl"},
		`true`:                              {"/o/ttl"},
		`[30]`:                              {"/o/ttl"},
		`[]`:                                {"/o/ttl/value"},
		`{}`:                                {"/o/ttl/value"},
		`{"unit":"second"}`:                 {"/o/ttl/value"},
		`{"Value":1,"unit":"second"}`:       {"/o/ttl/value"},
		`{"value":null,"unit":"fortnight"}`: {"/o/ttl/value", "/o/ttl/unit"},
		`{"value":0}`:                       {"/o/ttl/value"},
		`{"value":0.0}`:                     {"/o/ttl/value"},
		`{"value":0e999999999}`:             {"/o/ttl/value"},
		`{"value":-1}`:                      {"/o/ttl/value"},
		`{"value":-0}`:                      {"/o/ttl/value"},
		`{"value":-1e9999}`:                 {"/o/ttl/value"},
		`{"value":"-1"}`:                    {"/o/ttl/value"},
		`{"value":true}`:                    {"/o/ttl/value"},
		`{"value":{}}`:                      {"/o/ttl/value"},
		`{"value":[]}`:                      {"/o/ttl/value"},
		`{"value":""}`:                      {"/o/ttl/value"},
		`{"value":"abc"}`:                   {"/o/ttl/value"},
		`{"value":" 1"}`:                    {"/o/ttl/value"},
		`{"value":"1\n"}`:                   {"/o/ttl/value"},
		`{"value":"+1"}`:                    {"/o/ttl/value"},
		`{"value":"1e3"}`:                   {"/o/ttl/value"},
		`{"value":"0x10"}`:                  {"/o/ttl/value"},
		`{"value":"1_000"}`:                 {"/o/ttl/value"},
		`{"value":"1/2"}`:                   {"/o/ttl/value"},
		`{"value":".5"}`:                    {"/o/ttl/value"},
		`{"value":"5."}`:                    {"/o/ttl/value"},
		`{"value":"Infinity"}`:              {"/o/ttl/value"},
		`{"value":1,"value":2}`:             {"/o/ttl/value"},
		`{"value":1,"unit":""}`:             {"/o/ttl/unit"},
		`{"value":1,"unit":7}`:              {"/o/ttl/unit"},
		`{"value":1,"unit":"seconds"}`:      {"/o/ttl/unit"},
		`{"value":1,"unit":"Second"}`:       {"/o/ttl/unit"},
		`{"value":1,"unit":"s"}`:            {"/o/ttl/unit"},
		`{"value":1,"unit":"week"}`:         {"/o/ttl/unit"},
		`{"value":1,"unit":"iso8601"}`:      {"/o/ttl/unit"},
		`{"value":86400001,"unit":"millisecond"}`:            {"/o/ttl/value"},
		`{"value":86400.0000001}`:                            {"/o/ttl/value"},
		`{"value":9223372036854775807,"unit":"day"}`:         {"/o/ttl/value"},
		`{"value":9223372036854775808,"unit":"millisecond"}`: {"/o/ttl/value"},
		`{"value":213503982335,"unit":"day"}`:                {"/o/ttl/value"},
		`{"value":1e999999999999999999999}`:                  {"/o/ttl/value"},
		`{"value":1e400}`:                                    {"/o/ttl/value"},
		`{"value":` + strings.Repeat("9", 5000) + `.5}`:      {"/o/ttl/value"},
	}
	for raw, pointers := range cases {
		got, problems := read(raw, envelope.DurationLimits{Max: day})
		if diff := cmp.Diff(at(envelope.InvalidArguments, pointers...), found(problems)); diff != "" || got != nil {
			t.Errorf("%.80s: %v (-want +got):\n%s", raw, got, diff)
		}
	}
}

func TestDurationAboveTheLimitNamesTheLimit(t *testing.T) {
	cases := map[time.Duration]string{
		day:                     `{"max":{"value":86400,"unit":"second"}}`,
		1500 * time.Millisecond: `{"max":{"value":1500,"unit":"millisecond"}}`,
	}
	for limit, want := range cases {
		_, problems := read(`{"value":25,"unit":"hour"}`, envelope.DurationLimits{Max: limit})
		if len(problems) != 1 || string(problems[0].Details) != want {
			t.Errorf("limit %s: %v, want details %s", limit, problems, want)
		}
	}
}

func TestDurationWithoutALimitIsBoundedByItsType(t *testing.T) {
	longest := `{"value":9223372036854,"unit":"millisecond"}`
	if got, problems := read(longest, envelope.DurationLimits{}); problems != nil || got.Length != 9223372036854*time.Millisecond {
		t.Errorf("%v, %v", got, problems)
	}
	for _, raw := range []string{`{"value":9223372036855,"unit":"millisecond"}`, `{"value":9223372036854.1,"unit":"millisecond"}`} {
		if got, problems := read(raw, envelope.DurationLimits{}); len(problems) != 1 || problems[0].Details != nil {
			t.Errorf("%s: %v, %v", raw, got, problems)
		}
	}
}

func TestDurationOfZeroWhereItMeansSomething(t *testing.T) {
	limits := envelope.DurationLimits{Max: day, AllowZero: true}
	if got, problems := read(`{"value":0.00,"unit":"hour"}`, limits); problems != nil || got.Length != 0 {
		t.Errorf("%v, %v", got, problems)
	}
	if _, problems := read(`{"value":-1}`, limits); len(problems) != 1 {
		t.Errorf("a negative value: %v", problems)
	}
}

func TestDurationKeepsItsDigits(t *testing.T) {
	got, _ := read(`{"unit":"hour","value":"0.50"}`, envelope.DurationLimits{})
	if encoded := string(envelope.MustEncode(got)); encoded != `{"value":0.50,"unit":"hour"}` {
		t.Errorf("encoded as %s", encoded)
	}
}

func TestNewDuration(t *testing.T) {
	cases := map[time.Duration]string{
		0:                         `{"value":0,"unit":"second"}`,
		time.Hour:                 `{"value":3600,"unit":"second"}`,
		1500 * time.Millisecond:   `{"value":1500,"unit":"millisecond"}`,
		1500*time.Millisecond + 1: `{"value":1501,"unit":"millisecond"}`,
		time.Duration(1<<63 - 1):  `{"value":9223372036854,"unit":"millisecond"}`,
	}
	for length, want := range cases {
		if got := string(envelope.MustEncode(envelope.NewDuration(length))); got != want {
			t.Errorf("%s is %s, want %s", length, got, want)
		}
	}
}

// FuzzDuration compares lengths with exact arithmetic, and shows that no number takes
// long.
func FuzzDuration(f *testing.F) {
	for _, raw := range []string{`1`, `0.5`, `1e3`, `"30"`, `1.7976931348623157e308`, `123456789.000000001`} {
		f.Add(raw, "second")
	}
	f.Fuzz(func(t *testing.T, value, unit string) {
		if strings.ContainsAny(value, "{}[],:") || !json.Valid([]byte(value)) {
			return
		}
		quoted, err := json.Marshal(unit)
		if err != nil {
			return
		}
		got, problems := read(`{"value":`+value+`,"unit":`+string(quoted)+`}`, envelope.DurationLimits{})
		if (got == nil) == (problems == nil) {
			t.Fatalf("both or neither: %v, %v", got, problems)
		}
		if got == nil || len(value) > 40 || strings.ContainsAny(value, "eE") {
			return
		}
		factor := map[envelope.Unit]int64{"millisecond": 1, "second": 1e3, "minute": 6e4, "hour": 36e5, "day": 864e5}[got.Unit]
		exact, ok := new(big.Rat).SetString(got.Value.String())
		if !ok {
			t.Fatalf("%q is not a number", got.Value)
		}
		exact.Mul(exact, new(big.Rat).SetInt64(factor))
		length := new(big.Rat).SetInt64(got.Length.Milliseconds())
		if length.Cmp(exact) < 0 || length.Cmp(exact.Add(exact, big.NewRat(1, 1))) >= 0 {
			t.Fatalf("%s %s is %s", got.Value, got.Unit, got.Length)
		}
	})
}
