package forrst_test

import (
	"encoding/json"
	"testing"
)

// FuzzExtensionOptions shows that no options lead to an internal error, that tracing
// never fails a call, and that no lock is left.
func FuzzExtensionOptions(f *testing.F) {
	for _, options := range []string{
		`{}`, `[]`, `{"value":5,"unit":"second"}`, `{"value":"2034-02-03T04:05:06.1Z","unit":"iso8601"}`, `{"deadline":"0000-01-01T00:00:00+23:59"}`,
		`{"timeout":{"value":"0.001"},"deadline":7}`, `{"value":1e999999999,"unit":"day"}`, `{"token":"t-1"}`, `{"token":"\u0000"}`,
		`{"trace_id":"\ud83d\ude00","span_id":1,"baggage":{"a":[{}]}}`, `{"trace_id":"a","trace_id":"b","baggage":"x"}`,
	} {
		f.Add(options)
	}
	f.Fuzz(func(t *testing.T, options string) {
		if !json.Valid([]byte(options)) {
			return
		}
		fixture := newFixture(t)
		for _, name := range []string{"deadline", "cancellation", "tracing", "retry"} {
			got := fixture.post(envelopeWith(ping, "", locked(`{"key":"k",`+ttl+`}`)+`,{"urn":"urn:forrst:ext:`+name+`","options":`+options+`}`))
			switch {
			case got.status == 200, got.status == 400:
			case got.status == 504 && name == "deadline":
			default:
				t.Errorf("%s: status %d, %s", name, got.status, got.body)
			}
			if (name == "tracing" || name == "retry") && got.status != 200 && got.Errors[0].Code == "INVALID_ARGUMENTS" {
				t.Errorf("%s: %s", name, got.body)
			}
			fixture.wantHeld()
		}
	})
}
