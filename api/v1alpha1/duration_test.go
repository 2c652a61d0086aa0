package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDurationKeepsItsSpelling(t *testing.T) {
	for _, text := range []string{`"1h"`, `"60m"`, `"1h0m0s"`, `"90s"`, `"60m0.5s"`, `"0s"`, `"0h"`, `"1.50h"`, `"-5m"`, `"+1s"`} {
		var duration Duration
		var standard metav1.Duration
		if err := json.Unmarshal([]byte(text), &duration); err != nil {
			t.Errorf("read %s: %v", text, err)
			continue
		}
		if err := json.Unmarshal([]byte(text), &standard); err != nil || standard.Duration != duration.Duration {
			t.Errorf("%s is read as %s, and as %s, %v by Kubernetes", text, duration.Duration, standard.Duration, err)
		}
		var copied Duration
		duration.DeepCopyInto(&copied)
		if got, err := json.Marshal(&copied); err != nil || string(got) != text {
			t.Errorf("%s is written as %s, %v", text, got, err)
		}
	}
}

func TestDurationThatWasSetIsWrittenAsKubernetesDoes(t *testing.T) {
	var duration Duration
	if err := json.Unmarshal([]byte(`"1h"`), &duration); err != nil {
		t.Fatal(err)
	}
	changed, cleared := duration, duration
	changed.Duration *= 2
	cleared.Duration = 0
	for want, got := range map[string]Duration{
		`"2h0m0s"`: changed, `"0s"`: cleared, `"1h"`: duration, `"1m0s"`: {Duration: time.Minute},
	} {
		text, err := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("%s is written as %s, %v, want %s", got.Duration, text, err, want)
		}
	}
}

func TestDurationRefuses(t *testing.T) {
	for _, text := range []string{`""`, `"1"`, `"an hour"`, `3600`, `{}`, `"1d"`} {
		duration := Duration{Duration: time.Second}
		if err := json.Unmarshal([]byte(text), &duration); err == nil || duration.Duration != time.Second {
			t.Errorf("%s is read as %s, %v", text, duration, err)
		}
	}
}

func TestDurationEqual(t *testing.T) {
	hour, err := ParseDuration("60m")
	if err != nil {
		t.Fatal(err)
	}
	var none *Duration
	switch {
	case !hour.Equal(&Duration{Duration: time.Hour}):
		t.Error("two spellings of an hour are not equal")
	case hour.Equal(&Duration{Duration: time.Minute}):
		t.Error("an hour equals a minute")
	case hour.Equal(nil) || none.Equal(&hour):
		t.Error("nil equals an hour")
	case !none.Equal(nil):
		t.Error("nil does not equal nil")
	}
}
