package jobs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The API server refuses a CronJob of Jobs under a lock with other annotations.
func TestThePolicyForCronJobsKnowsTheAnnotations(t *testing.T) {
	policy, err := os.ReadFile("../../config/admission-policy/cronjobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(userAnnotations, operatorAnnotations) {
		if !strings.Contains(string(policy), "'"+name+"'") {
			t.Errorf("it lacks %s", name)
		}
	}
}
