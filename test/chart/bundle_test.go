package chart_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// TestTheChartIsTheBundle compares each bundle, and the component for monitoring, with the chart under the values that
// stand for it.
func TestTheChartIsTheBundle(t *testing.T) {
	folder := bundles(t)
	for bundle, flags := range map[string][]string{
		"install.yaml":                   {},
		"install-high-availability.yaml": {"--set=highAvailability=true"},
		"install-guards.yaml":            {"--set=guards.enabled=true"},
		"install-policies.yaml":          {"--set=lockPolicies.enabled=true"},
		"install-cert-manager.yaml":      {"--set=certificates.provider=cert-manager,guards.enabled=true"},
		"install-full.yaml":              {"--set=highAvailability=true,guards.enabled=true,lockPolicies.enabled=true"},
	} {
		t.Run(bundle, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(folder, bundle))
			if err != nil {
				t.Fatal(err)
			}
			isTheBundle(t, string(text), flags)
		})
	}
	t.Run("config/observability", func(t *testing.T) {
		isTheBundle(t, observed(t), []string{"--set=metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true,metrics.dashboard.enabled=true"})
	})
}

// isTheBundle compares what the chart renders by the flags with the text of a bundle, object by object.
func isTheBundle(t *testing.T, text string, flags []string) {
	t.Helper()
	want := parse(t, text)
	got := render(t, append(flags, "--set=namespace.create=true")...)
	for _, object := range got {
		withoutHelm(t, object)
		normalize(t, object)
	}
	for _, object := range want {
		withDeclaredDifferences(object)
		normalize(t, object)
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
}

// observed renders config/default with what a Prometheus Operator and Grafana get, which is in no bundle.
func observed(t *testing.T) string {
	t.Helper()
	config, err := filepath.Abs(root + "/config")
	if err != nil {
		t.Fatal(err)
	}
	overlay := t.TempDir()
	relative, err := filepath.Rel(overlay, config)
	if err != nil {
		t.Fatal(err)
	}
	kustomization := "resources: [" + relative + "/default]\ncomponents: [" + relative + "/observability]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", overlay).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
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

// normalize expands the environment in the flags of a Deployment, as a kubelet does, and sorts them: config/ has
// names in the environment, where kustomize finds them.
func normalize(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if object.GetKind() != "Deployment" {
		return
	}
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
		t.Fatal(err)
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	var replacements []string
	container.Env = slices.DeleteFunc(container.Env, func(variable corev1.EnvVar) bool {
		if variable.ValueFrom != nil {
			return false
		}
		replacements = append(replacements, "$("+variable.Name+")", variable.Value)
		return true
	})
	for i, argument := range container.Args {
		container.Args[i] = strings.NewReplacer(replacements...).Replace(argument)
	}
	slices.Sort(container.Args)
	changed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&deployment)
	if err != nil {
		t.Fatal(err)
	}
	object.Object = changed
}
