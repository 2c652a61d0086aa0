package health

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestFluxReadiness(t *testing.T) {
	for _, sample := range samples(t) {
		t.Run(sample.InputPath, func(t *testing.T) {
			result, err := status.Compute(readLock(t, sample.InputPath))
			if err != nil {
				t.Fatal(err)
			}
			if string(result.Status) != sample.KStatus {
				t.Errorf("kstatus is %s, want %s", result.Status, sample.KStatus)
			}
		})
	}
}

func TestFluxHealthCheckExpressions(t *testing.T) {
	evaluator, err := cel.NewStatusEvaluator(documentedExpressions(t, "forrst.dev/v1alpha1", "Lock"))
	if err != nil {
		t.Fatal(err)
	}
	for holder, want := range map[string]status.Status{
		"system:serviceaccount:flux-system:kustomize-controller":     status.CurrentStatus,
		"system:serviceaccount:argocd:argocd-application-controller": status.FailedStatus,
		"": status.InProgressStatus,
	} {
		lock := readLock(t, "freeze.yaml")
		unstructured.RemoveNestedField(lock.Object, "spec", "holder")
		if holder != "" {
			if err := unstructured.SetNestedField(lock.Object, holder, "spec", "holder"); err != nil {
				t.Fatal(err)
			}
		}
		result, err := evaluator.Evaluate(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != want {
			t.Errorf("held by %q: %s, want %s", holder, result.Status, want)
		}
	}
}

// documentedExpressions are those that docs/gitops.md shows for a kind.
func documentedExpressions(t *testing.T, apiVersion, kind string) *kustomize.HealthCheckExpressions {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		var kustomization struct {
			Spec struct {
				HealthCheckExprs []struct {
					APIVersion string `json:"apiVersion"`
					Kind       string `json:"kind"`

					kustomize.HealthCheckExpressions `json:",inline"`
				} `json:"healthCheckExprs"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(block[1], &kustomization); err != nil {
			continue // Several documents, or none of Flux.
		}
		for _, check := range kustomization.Spec.HealthCheckExprs {
			if check.APIVersion == apiVersion && check.Kind == kind {
				return &check.HealthCheckExpressions
			}
		}
	}
	t.Fatalf("docs/gitops.md shows no healthCheckExprs for %s", kind)
	return nil
}
