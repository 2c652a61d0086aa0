package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTimestampReadsRFC3339AndWritesMicroseconds(t *testing.T) {
	cases := map[string]string{
		`"2026-12-24T00:00:00Z"`:           `"2026-12-24T00:00:00.000000Z"`,
		`"2026-12-24T01:00:00+01:00"`:      `"2026-12-24T00:00:00.000000Z"`,
		`"2026-12-24T00:00:00.123456789Z"`: `"2026-12-24T00:00:00.123456Z"`,
		`"2026-12-24T00:00:00.5Z"`:         `"2026-12-24T00:00:00.500000Z"`,
		`"2026-12-24T00:00:00,5Z"`:         `"2026-12-24T00:00:00.500000Z"`, // Stored by an earlier version.
	}
	for text, want := range cases {
		var timestamp Timestamp
		if err := json.Unmarshal([]byte(text), &timestamp); err != nil {
			t.Errorf("read %s: %v", text, err)
			continue
		}
		got, err := json.Marshal(timestamp)
		if err != nil || string(got) != want {
			t.Errorf("%s is written as %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestTimestampRefuses(t *testing.T) {
	for _, text := range []string{`"2026-12-24"`, `"tomorrow"`, `""`, `17`, `"2026-12-24T00:00:00"`} {
		var timestamp Timestamp
		if err := json.Unmarshal([]byte(text), &timestamp); err == nil {
			t.Errorf("%s is read as %s", text, timestamp)
		}
	}
}

func TestTimestampEqual(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	a, b := NewTimestamp(at), NewTimestamp(at.In(time.FixedZone("", 3600)))
	later := NewTimestamp(at.Add(time.Microsecond))
	var none *Timestamp
	switch {
	case !a.Equal(&b):
		t.Error("the same point in time in two zones is not equal")
	case a.Equal(&later):
		t.Error("two points in time a microsecond apart are equal")
	case a.Equal(nil) || none.Equal(&a):
		t.Error("nil equals a point in time")
	case !none.Equal(nil):
		t.Error("nil does not equal nil")
	}
}
