package chart_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// bundles renders the bundles into a folder.
func bundles(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "-C", root+"/hack/chart", "run", ".", "-bundles", folder)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return folder
}

// TestTheChartIsTheBundle compares each bundle with the chart under the values that stand for it.
func TestTheChartIsTheBundle(t *testing.T) {
	folder := bundles(t)
	for bundle, flags := range map[string][]string{
		"install.yaml":                   {},
		"install-high-availability.yaml": {"--set=highAvailability=true"},
		"install-guards.yaml":            {"--set=guards.enabled=true"},
		"install-policies.yaml":          {"--set=lockPolicies.enabled=true"},
		"install-full.yaml":              {"--set=highAvailability=true,guards.enabled=true,lockPolicies.enabled=true"},
	} {
		t.Run(bundle, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(folder, bundle))
			if err != nil {
				t.Fatal(err)
			}
			want := parse(t, string(text))
			got := render(t, append(flags, "--set=namespace.create=true,certificates.provider=cert-manager")...)
			for _, object := range got {
				withoutHelm(t, object)
			}
			for _, object := range want {
				withDeclaredDifferences(object)
			}
			maps.DeleteFunc(got, func(name string, object *unstructured.Unstructured) bool {
				_, isHook := object.GetAnnotations()["helm.sh/hook"]
				// Only the pods of hooks need it.
				return isHook || name == "NetworkPolicy/lock-operator-hooks"
			})
			if len(want) < 30 {
				t.Fatalf("the bundle has only %d objects", len(want))
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if got[name] == nil {
					t.Errorf("the chart lacks %s", name)
				} else if difference := cmp.Diff(want[name].Object, got[name].Object); difference != "" {
					t.Errorf("%s differs (-bundle +chart):\n%s", name, difference)
				}
				delete(got, name)
			}
			for name := range got {
				t.Errorf("the bundle lacks %s", name)
			}
		})
	}
}

// helmLabels are on every object and pod of the chart besides those of config/.
var helmLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}

func withoutHelm(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		labels, isThere, err := unstructured.NestedStringMap(object.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		if !isThere {
			continue
		}
		for _, name := range helmLabels {
			if labels[name] == "" {
				t.Errorf("%s %s lacks the label %s", object.GetKind(), object.GetName(), name)
			}
			delete(labels, name)
		}
		if err := unstructured.SetNestedStringMap(object.Object, labels, path...); err != nil {
			t.Fatal(err)
		}
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "helm.sh/resource-policy")
	if len(object.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
	}
}

// withDeclaredDifferences changes an object of the bundle as the chart has it on purpose.
func withDeclaredDifferences(object *unstructured.Unstructured) {
	// The generated objects of config/ have no label.
	labels := object.GetLabels()
	if labels["app.kubernetes.io/name"] == "" {
		object.SetLabels(map[string]string{"app.kubernetes.io/name": "lock-operator"})
	}
}
