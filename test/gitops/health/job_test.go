package health

import (
	"path/filepath"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/runtime/cel"
	"github.com/fluxcd/pkg/runtime/statusreaders"
)

// jobSample is a state of a Job under a lock, and how tools are to show it.
type jobSample struct {
	InputPath    string       `json:"inputPath"`
	HealthStatus healthStatus `json:"healthStatus"`
	Flux         string       `json:"flux"`
}

func TestArgoCDShowsTheStateOfAJobUnderALock(t *testing.T) {
	for _, sample := range jobSamples(t) {
		t.Run(sample.InputPath, func(t *testing.T) {
			script := customizations(t)["resource.customizations.health.batch_Job"]
			if got := runScript(t, script, read(t, "jobs", sample.InputPath), 0); got != sample.HealthStatus {
				t.Errorf("got %+v, want %+v", got, sample.HealthStatus)
			}
		})
	}
}

func TestFluxWaitsForAJobUnderALock(t *testing.T) {
	evaluator, err := cel.NewStatusEvaluator(documentedExpressions(t, "batch/v1", "Job"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range jobSamples(t) {
		result, err := evaluator.Evaluate(t.Context(), read(t, "jobs", sample.InputPath))
		if err != nil {
			t.Fatal(err)
		}
		if string(result.Status) != sample.Flux {
			t.Errorf("%s is %s, want %s", sample.InputPath, result.Status, sample.Flux)
		}
	}
}

// Flux takes a suspended Job for ready, also one that failed before it was started. This test tells
// when the expressions are needed no more.
func TestFluxTakesASuspendedJobForReadyByItself(t *testing.T) {
	for name, want := range map[string]status.Status{
		"waiting.yaml": status.CurrentStatus, "timed_out.yaml": status.CurrentStatus, "running.yaml": status.InProgressStatus,
		"complete.yaml": status.CurrentStatus, "failed.yaml": status.FailedStatus,
	} {
		if got := statusreaders.ComputeJobStatus(read(t, "jobs", name)); got.Status != want {
			t.Errorf("%s is %s, want %s", name, got.Status, want)
		}
	}
}

func jobSamples(t *testing.T) []jobSample {
	t.Helper()
	var file struct {
		Tests []jobSample `json:"tests"`
	}
	unmarshal(t, filepath.Join("testdata", "jobs", "health_test.yaml"), &file)
	inputs, err := filepath.Glob(filepath.Join("testdata", "jobs", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Tests) != len(inputs)-1 {
		t.Fatalf("there are %d states and %d expectations", len(inputs)-1, len(file.Tests))
	}
	return file.Tests
}
