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
			HonorLabels bool      `json:"honorLabels"`
			TLSConfig   tlsConfig `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// tlsConfig says how a Prometheus knows what it scrapes.
type tlsConfig struct {
	ServerName string `json:"serverName"`
	CA         struct {
		ConfigMap, Secret struct {
			Name string `json:"name"`
		}
	} `json:"ca"`
}

// render returns the objects of a kustomization, whose paths are those of folders in config/.
func render(t *testing.T, kustomization map[string]any) []rendered {
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
	for key, value := range kustomization {
		if folders, ok := value.([]string); ok {
			var paths []string
			for _, folder := range folders {
				paths = append(paths, filepath.Join(relative, folder))
			}
			kustomization[key] = paths
		}
	}
	writeYAML(t, filepath.Join(overlay, "kustomization.yaml"), kustomization)
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
	for _, object := range render(t, map[string]any{"resources": []string{"default"}, "components": []string{"observability"}}) {
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
		"Service lock-operator-facade-metrics", "Service lock-operator-controllers-metrics", "Service lock-operator-webhook-metrics",
		"ServiceMonitor lock-operator-facade", "ServiceMonitor lock-operator-controllers", "ServiceMonitor lock-operator-webhook", "PrometheusRule lock-operator", "ConfigMap lock-operator-dashboard",
	} {
		if found[want] != 1 {
			t.Errorf("%d times %s", found[want], want)
		}
	}
}

// TestWhatIsScrapedIsKnownByItsNames renders the ServiceMonitors for other names, and for certificates of cert-manager.
func TestWhatIsScrapedIsKnownByItsNames(t *testing.T) {
	for _, certificates := range []string{"own", "cert-manager"} {
		base, components := "default", []string{"observability"}
		if certificates == "cert-manager" {
			base, components = "base", append(components, "certmanager")
		}
		found := 0
		for _, object := range render(t, map[string]any{
			"resources": []string{base}, "components": components, "transformers": []string{"identity"}, "namespace": "platform-locks", "namePrefix": "team-",
		}) {
			if object.Kind != "ServiceMonitor" {
				continue
			}
			found++
			var want tlsConfig
			want.ServerName = object.Metadata.Name + ".platform-locks.svc"
			if certificates == "own" {
				want.CA.ConfigMap.Name = "team-lock-operator-authority"
			} else {
				// cert-manager's Secrets are not in the kustomization, so their names stay.
				want.CA.Secret.Name = strings.TrimPrefix(object.Metadata.Name, "team-")
			}
			if got := object.Spec.Endpoints[0].TLSConfig; got != want {
				t.Errorf("with %s certificates, %s knows %+v, want %+v", certificates, object.Metadata.Name, got, want)
			}
		}
		if found != 3 {
			t.Errorf("with %s certificates there are %d ServiceMonitors", certificates, found)
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
