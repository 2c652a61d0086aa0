package freezing_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/freezing"
)

func TestNamesWhichConfigMapsAreFrozen(t *testing.T) {
	if got := freezing.Default(); !strings.HasSuffix(got, "services, configmaps with the label app.kubernetes.io/name") {
		t.Errorf("got %q", got)
	}
	guards, err := freezing.Guards([]string{"configmaps"})
	if got := freezing.Resources(guards); err != nil || got != "configmaps" {
		t.Errorf("all of them are named %q, %v", got, err)
	}
}

func TestParseUntil(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 23, 15, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"36h":                   now.Add(36 * time.Hour),
		"3d":                    now.AddDate(0, 0, 3),
		"2027-01-04":            time.Date(2027, 1, 4, 0, 0, 0, 0, zone),
		"2027-01-04 06:00":      time.Date(2027, 1, 4, 6, 0, 0, 0, zone),
		"2027-01-04T06:00+0100": time.Date(2027, 1, 4, 5, 0, 0, 0, time.UTC),
		"2027-01-04 06:00Z":     time.Date(2027, 1, 4, 6, 0, 0, 0, time.UTC),
		"1d12h":                 now.Add(36 * time.Hour),
		"2027-01-04T06:00:00Z":  time.Date(2027, 1, 4, 6, 0, 0, 0, time.UTC),
		"18:00":                 time.Date(2026, 11, 23, 18, 0, 0, 0, zone),
		"06:00":                 time.Date(2026, 11, 24, 6, 0, 0, 0, zone),
	} {
		if got, err := freezing.ParseUntil(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-1h", "0s", "400d", "1.5d", "2020-01-01", "2028-01-01", "25:00", "3dd", "99999999999d"} {
		if got, err := freezing.ParseUntil(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestFreezesWhatTheSampleFreezes(t *testing.T) {
	content, err := os.ReadFile("../../config/samples/guards/freeze.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sample v1alpha1.Lock
	if err := yaml.Unmarshal(content, &sample); err != nil {
		t.Fatal(err)
	}
	guards, err := freezing.Guards(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample.Spec.Guards, guards); diff != "" {
		t.Error(diff)
	}
	if sample.Spec.Key != freezing.Key {
		t.Errorf("the sample has the key %s", sample.Spec.Key)
	}
}

func TestGuards(t *testing.T) {
	guards, err := freezing.Guards([]string{"deployments.apps", "services"})
	if err != nil || freezing.Resources(guards) != "deployments.apps, services" {
		t.Errorf("%v, %v", guards, err)
	}
	for _, resources := range [][]string{{""}, {"Deployments.apps"}, {"services", "services"}} {
		if guards, err := freezing.Guards(resources); err == nil {
			t.Errorf("%v are %v", resources, guards)
		}
	}
}
