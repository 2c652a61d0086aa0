package envelope_test

import (
	"encoding/json"
	"testing"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// What JSON Schema calls an integer is one.
func TestIntegers(t *testing.T) {
	for text, want := range map[string]struct {
		number    int64
		isRefused bool
	}{
		"5": {number: 5}, "5.0": {number: 5}, "5e0": {number: 5}, "1e1": {number: 10}, "2147483647.0": {number: 2147483647}, "null": {},
		"5.5": {isRefused: true}, `"5"`: {isRefused: true}, "1e400": {isRefused: true}, "1e19": {isRefused: true}, "true": {isRefused: true}, "[5]": {isRefused: true},
	} {
		var errors envelope.Errors
		fields, _ := envelope.ReadObject(json.RawMessage(`{"n":`+text+`}`), "/call/arguments", envelope.InvalidArguments, &errors)
		if got := fields.Integer("n"); int64(got) != want.number || (len(errors) > 0) != want.isRefused {
			t.Errorf("%s is %d of 32 bits, refused: %v", text, got, errors)
		}
		errors = nil
		if got := fields.PositiveInteger("n"); got != want.number || (len(errors) > 0) != want.isRefused {
			t.Errorf("%s is %d of 64 bits, refused: %v", text, got, errors)
		}
	}
}
