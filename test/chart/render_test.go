// Package chart_test holds the Helm chart against config/, against each of its values, and against a real
// API server, into which Helm installs it.
package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/charts/lock-operator"
	// release and namespace are those that give the names of config/.
	release   = "lock-operator"
	namespace = "forrst-system"
)

var components = []string{"facade", "controllers", "webhook"}

// helm runs the Helm that make bin/helm builds.
func helm(ctx context.Context, arguments ...string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(root, "bin", "helm"))
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, binary, arguments...)
	// Nothing of the user's own Helm.
	command.Env = append(os.Environ(), "HELM_CACHE_HOME=/nonexistent", "HELM_CONFIG_HOME=/nonexistent", "HELM_DATA_HOME=/nonexistent")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(arguments, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// objects are those of a rendering by "Kind/name".
type objects map[string]*unstructured.Unstructured

// render renders the chart under the names of config/, with flags such as "--set=guards.enabled=true".
func render(t *testing.T, flags ...string) objects {
	t.Helper()
	return renderAs(t, release, namespace, flags...)
}

func renderAs(t *testing.T, release, namespace string, flags ...string) objects {
	t.Helper()
	text, err := helm(t.Context(), slices.Concat([]string{"template", release, chart, "--namespace=" + namespace}, flags)...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

func parse(t *testing.T, text string) objects {
	t.Helper()
	found := objects{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		name := object.GetKind() + "/" + object.GetName()
		if found[name] != nil {
			t.Fatalf("%s is there twice", name)
		}
		found[name] = object
	}
	return found
}

// at returns what is at a path of names and indexes such as "spec template spec containers 0 args", or nil.
func (o objects) at(t *testing.T, name, path string) any {
	t.Helper()
	if o[name] == nil {
		t.Fatalf("there is no %s", name)
	}
	var value any = o[name].Object
	for part := range strings.FieldsSeq(path) {
		switch typed := value.(type) {
		case map[string]any:
			value = typed[part]
		case []any:
			var index int
			if _, err := fmt.Sscanf(part, "%d", &index); err != nil || index >= len(typed) {
				return nil
			}
			value = typed[index]
		default:
			return nil
		}
	}
	return value
}

// pods are the names of all workloads, those of hooks included, with the path to the spec of their pods.
func (o objects) pods(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, object := range o {
		switch object.GetKind() {
		case "Deployment", "Job":
			found[name] = "spec template spec "
		case "Pod":
			found[name] = "spec "
		}
	}
	if len(found) != 5 {
		t.Fatalf("found %d pods, want 5", len(found))
	}
	return found
}

// arguments are the flags of a component.
func (o objects) arguments(t *testing.T, component string) []string {
	t.Helper()
	values, _ := o.at(t, "Deployment/lock-operator-"+component, "spec template spec containers 0 args").([]any)
	arguments := make([]string, 0, len(values))
	for _, value := range values {
		arguments = append(arguments, fmt.Sprint(value))
	}
	return arguments
}

// text is all that is rendered, for searches.
func (o objects) text(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, object := range o {
		part, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(part)
	}
	return text.String()
}

// isEqual compares values of parsed YAML, in which numbers are floats.
func isEqual(got, want any) bool {
	if number, isInteger := got.(int64); isInteger {
		got = float64(number)
	}
	return cmp.Equal(got, want)
}
