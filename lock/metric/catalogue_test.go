package metric_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/test/support/golden"
)

// page has the table between two lines.
const (
	page  = "../../docs/metrics.md"
	begin = "<!-- The table begins here. \"make generate\" writes it from lock/metric. -->\n"
	end   = "<!-- The table ends here. -->\n"
)

// TestTable compares the table of docs/metrics.md with the catalogue. "make generate" updates it.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(text), begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no place for the table", page)
	}
	golden.CheckFile(t, page, before+begin+metric.Table()+"\n"+end+after)
}

func TestTheCatalogueFollowsTheRules(t *testing.T) {
	bounded := regexp.MustCompile(`^(namespace|state|event|reason|via|door|outcome|waited|function|code|limit|engine|verb|resource|operation|cause|certificate|class|version|revision|go_version)$`)
	names := map[string]bool{}
	var exposed strings.Builder
	for _, section := range metric.Catalogue() {
		for _, of := range section.Metrics {
			if names[of.Name] {
				t.Errorf("%s is declared twice", of.Name)
			}
			names[of.Name] = true
			if !strings.HasPrefix(of.Name, "lock_operator_") || !strings.HasSuffix(of.Help, ".") || of.By == "" {
				t.Errorf("%+v is incomplete", of)
			}
			if (of.Type == metric.Histogram) != (len(of.Buckets) > 0) {
				t.Errorf("%s has %d buckets", of.Name, len(of.Buckets))
			}
			for _, label := range of.Labels {
				if !bounded.MatchString(label) {
					t.Errorf("%s has the label %s, which is not known to be bounded", of.Name, label)
				}
			}
			for label := range of.Values {
				if !strings.Contains(strings.Join(of.Labels, " "), label) {
					t.Errorf("%s describes the values of %s, which is none of its labels", of.Name, label)
				}
			}
			exposed.WriteString(exposition.Of(of, ""))
		}
	}
	problems, err := promlint.New(strings.NewReader(exposed.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestHistogramsAreNativeOnesToo(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	duration := metric.AcquireDuration.HistogramVec(nil)
	if err := metric.Register(registry, duration); err != nil {
		t.Fatal(err)
	}
	duration.WithLabelValues("facade", "false").Observe(0.004)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histogram := families[0].GetMetric()[0].GetHistogram()
	if len(histogram.GetBucket()) != len(metric.AcquireDuration.Buckets) || len(histogram.GetPositiveSpan()) != 1 || histogram.GetSampleCount() != 1 {
		t.Errorf("got %v", histogram)
	}
	if err := metric.Register(registry, metric.AcquireDuration.HistogramVec(nil)); err == nil {
		t.Error("registered twice")
	}
}
