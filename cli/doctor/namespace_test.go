package doctor

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOfANamespaceThatDoesNotExistNothingElseIsSaid(t *testing.T) {
	facts := well(t)
	facts.Labels.Err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "nosuch")
	var found []string
	for _, finding := range Judge(facts) {
		switch finding.Check {
		case "namespace", "your rights", "a dry run":
			found = append(found, finding.Check+": "+string(finding.Status))
		}
	}
	if want := []string{"namespace: " + string(Fail)}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
