package health

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// states of the field flux, as a condition of Argo Workflows ends them.
var workflowConditions = map[string]string{"Current": "successCondition", "Failed": "failureCondition"}

// Argo Workflows reads a condition as a selector of labels, and takes paths into the object for their names.
func TestArgoWorkflowsWaitsForAJobUnderALock(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	for state, name := range workflowConditions {
		found := regexp.MustCompile(name + `: (.*)\n`).FindSubmatch(page)
		if found == nil {
			t.Fatalf("docs/gitops.md has no %s", name)
		}
		condition, err := labels.ParseToRequirements(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range jobSamples(t) {
			isMet := true
			for _, requirement := range condition {
				value, isSet := at(read(t, "jobs", sample.InputPath), requirement.Key())
				isMet = isMet && isSet && requirement.Matches(labels.Set{requirement.Key(): value})
			}
			if isMet != (sample.Flux == state) {
				t.Errorf("%s: the %s is met: %t", sample.InputPath, name, isMet)
			}
		}
	}
}

// at returns the text at a path of fields and indices.
func at(object *unstructured.Unstructured, path string) (text string, isSet bool) {
	var value any = object.Object
	for part := range strings.SplitSeq(path, ".") {
		switch parent := value.(type) {
		case map[string]any:
			value = parent[part]
		case []any:
			index, err := strconv.Atoi(part)
			if err != nil || index >= len(parent) {
				return "", false
			}
			value = parent[index]
		default:
			return "", false
		}
	}
	text, isSet = value.(string)
	return text, isSet
}
