package observability_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A rendered object has what the test looks at.
type rendered struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
	Spec struct {
		Groups    []ruleGroup `json:"groups"`
		Endpoints []struct {
			HonorLabels bool `json:"honorLabels"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// render returns the objects of the default installation with config/observability.
func render(t *testing.T) []rendered {
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
	writeYAML(t, filepath.Join(overlay, "kustomization.yaml"), map[string][]string{
		"resources": {relative + "/default"}, "components": {relative + "/observability"},
	})
	output, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", overlay).Output()
	if err != nil {
		t.Fatal(err)
	}
	var objects []rendered
	for text := range strings.SplitSeq(string(output), "\n---\n") {
		var object rendered
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

func TestTheComponentInstallsWhatIsTested(t *testing.T) {
	found := map[string]int{}
	for _, object := range render(t) {
		found[object.Kind+" "+object.Metadata.Name]++
		switch object.Kind {
		case "PrometheusRule":
			var file ruleFile
			readYAML(t, filepath.Join(folder, "alerts.yaml"), &file)
			if !reflect.DeepEqual(object.Spec.Groups, file.Groups) {
				t.Error("the PrometheusRule has other rules than alerts.yaml")
			}
		case "ServiceMonitor":
			for _, endpoint := range object.Spec.Endpoints {
				if !endpoint.HonorLabels {
					t.Errorf("%s replaces the namespace of the locks by that of the pod", object.Metadata.Name)
				}
			}
		case "ConfigMap":
			if object.Metadata.Name == "lock-operator-dashboard" && object.Data["lock-operator.json"] != read(t, filepath.Join(folder, "dashboard.json")) {
				t.Error("the ConfigMap has another dashboard")
			}
		}
	}
	for _, want := range []string{
		"Service lock-operator-metrics", "ServiceMonitor lock-operator-facade", "ServiceMonitor lock-operator-controllers",
		"ServiceMonitor lock-operator-webhook", "PrometheusRule lock-operator", "ConfigMap lock-operator-dashboard",
	} {
		if found[want] != 1 {
			t.Errorf("%d times %s", found[want], want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
