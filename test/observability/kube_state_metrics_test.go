package observability_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A stateConfig is the part of the configuration of kube-state-metrics that Locks need, as its documentation
// describes it. The module of kube-state-metrics itself is not to be had where these tests run
// (docs/observability.md).
type stateConfig struct {
	Kind string `json:"kind"`
	Spec struct {
		Resources []struct {
			GroupVersionKind struct {
				Group   string `json:"group"`
				Version string `json:"version"`
				Kind    string `json:"kind"`
			} `json:"groupVersionKind"`
			ResourcePlural   string              `json:"resourcePlural"`
			MetricNamePrefix string              `json:"metricNamePrefix"`
			LabelsFromPath   map[string][]string `json:"labelsFromPath"`
			Metrics          []stateMetric       `json:"metrics"`
		} `json:"resources"`
	} `json:"spec"`
}

type stateMetric struct {
	Name string `json:"name"`
	Help string `json:"help"`
	Each struct {
		Type string `json:"type"`
		Info *struct {
			LabelsFromPath map[string][]string `json:"labelsFromPath"`
		} `json:"info"`
		Gauge *struct {
			Path []string `json:"path"`
		} `json:"gauge"`
	} `json:"each"`
}

func readStateConfig(t *testing.T) *stateConfig {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "kube_state_metrics.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := &stateConfig{}
	if err := yaml.UnmarshalStrict(content, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func TestKubeStateMetricsReadsWhatLocksHave(t *testing.T) {
	config := readStateConfig(t)
	if config.Kind != "CustomResourceStateMetrics" || len(config.Spec.Resources) != 1 {
		t.Fatalf("kind %s with %d resources", config.Kind, len(config.Spec.Resources))
	}
	var definition apiextensionsv1.CustomResourceDefinition
	readYAML(t, root+"/config/crd/bases/forrst.dev_locks.yaml", &definition)
	resource := config.Spec.Resources[0]
	version := definition.Spec.Versions[0]
	if of := resource.GroupVersionKind; of.Group != definition.Spec.Group || of.Version != version.Name || of.Kind != definition.Spec.Names.Kind ||
		resource.ResourcePlural != definition.Spec.Names.Plural {
		t.Errorf("it is about %+v", of)
	}
	if len(resource.Metrics) == 0 {
		t.Fatal("there are no metrics")
	}
	fields := fields{t, version.Schema.OpenAPIV3Schema}
	for label, path := range resource.LabelsFromPath {
		fields.check(label, path)
	}
	for _, metric := range resource.Metrics {
		fields.checkMetric(metric)
	}
}

// fields are those of a Lock.
type fields struct {
	*testing.T
	schema *apiextensionsv1.JSONSchemaProps
}

func (f fields) checkMetric(metric stateMetric) {
	f.Helper()
	switch {
	case metric.Help == "":
		f.Errorf("%s has no help", metric.Name)
	case metric.Each.Type == "Info" && metric.Each.Info != nil && len(metric.Each.Info.LabelsFromPath) > 0:
		for label, path := range metric.Each.Info.LabelsFromPath {
			f.check(metric.Name+" "+label, path)
		}
	case metric.Each.Type == "Gauge" && metric.Each.Gauge != nil:
		if format := f.check(metric.Name, metric.Each.Gauge.Path); format != "date-time" {
			f.Errorf("%s is no time", metric.Name)
		}
	default:
		f.Errorf("%s has the type %q without what that needs", metric.Name, metric.Each.Type)
	}
}

// check fails unless the path leads to a text that may be shown. It returns the format of the text.
func (f fields) check(where string, path []string) (format string) {
	f.Helper()
	if len(path) == 2 && path[0] == "metadata" && slices.Contains([]string{"name", "namespace"}, path[1]) {
		return ""
	}
	field := *f.schema
	for _, name := range path {
		next, isThere := field.Properties[name]
		if !isThere {
			f.Errorf("%s: a Lock has no %s", where, strings.Join(path, "."))
			return ""
		}
		field = next
	}
	if path[len(path)-1] == "owner" {
		f.Errorf("%s shows the owner token", where)
	}
	if field.Type != "string" {
		f.Errorf("%s: %s is of type %s, so its text is not that of a label", where, strings.Join(path, "."), field.Type)
	}
	return field.Format
}

// requireStateMetrics fails unless each lock of the cluster has each metric, and each label a value of a lock.
// It reads Locks as kube-state-metrics does.
func requireStateMetrics(t *testing.T, on *cluster) {
	t.Helper()
	if output, err := on.shell(t.Context(), "kubectl create --filename config/samples/function_lock.yaml"); err != nil {
		t.Fatal(output)
	}
	output, err := on.shell(t.Context(), "kubectl get locks.forrst.dev --all-namespaces --output json")
	if err != nil {
		t.Fatal(output)
	}
	var locks struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal([]byte(output), &locks); err != nil {
		t.Fatal(err)
	}
	if len(locks.Items) == 0 {
		t.Fatal("there are no locks")
	}
	resource := readStateConfig(t).Spec.Resources[0]
	for name, path := range resource.LabelsFromPath {
		if found := valuesAt(t, locks.Items, path); len(found) != len(locks.Items) {
			t.Errorf("%d of %d locks have the label %s", len(found), len(locks.Items), name)
		}
	}
	for _, metric := range resource.Metrics {
		if metric.Each.Info != nil {
			for name, path := range metric.Each.Info.LabelsFromPath {
				if len(valuesAt(t, locks.Items, path)) == 0 {
					t.Errorf("no lock has the label %s of %s", name, metric.Name)
				}
			}
			continue
		}
		found := valuesAt(t, locks.Items, metric.Each.Gauge.Path)
		if len(found) != len(locks.Items) {
			t.Errorf("%d of %d locks have %s", len(found), len(locks.Items), metric.Name)
		}
		for _, value := range found {
			if _, err := time.Parse(time.RFC3339, value); err != nil {
				t.Errorf("%s: %v", metric.Name, err)
			}
		}
	}
}

// valuesAt returns the texts at a path of objects, of those that have one.
func valuesAt(t *testing.T, objects []map[string]any, path []string) (values []string) {
	t.Helper()
	for _, object := range objects {
		value, _, err := unstructured.NestedString(object, path...)
		if err != nil {
			t.Error(err)
		} else if value != "" {
			values = append(values, value)
		}
	}
	return values
}
