package observability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/lock/metric"
)

const (
	root   = "../.."
	folder = root + "/config/observability"
)

// A rule is one alert of config/observability/alerts.yaml.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// A ruleFile is a file of rules for Prometheus.
type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	readYAML(t, filepath.Join(folder, "alerts.yaml"), &file)
	var rules []rule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no alerts")
	}
	return rules
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// A panel is one of the dashboard, with what the tests look at.
type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

// A dashboard is that of config/observability, with what the tests look at.
type dashboard struct {
	Panels      []panel `json:"panels"`
	Annotations struct {
		List []struct {
			Name string `json:"name"`
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
			Type string `json:"type"`
			// Query is a text in the variable that chooses the data source.
			Query any `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	return board
}

// panels returns the panels that have queries.
func panels(t *testing.T) []panel {
	t.Helper()
	board := readDashboard(t)
	shown := slices.DeleteFunc(board.Panels, func(p panel) bool { return p.Type == "row" })
	if len(shown) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return shown
}

// filled replaces the variables of a query as Grafana does if all namespaces are chosen.
func filled(query string) string {
	return strings.NewReplacer("$namespace", ".*", "$__rate_interval", rateInterval).Replace(query)
}

// rateInterval spans several scrapes of the development cluster.
const rateInterval = "10s"

// declared returns the labels of all series that a query may name: those of the operator, and some of its
// process and of Prometheus.
func declared() map[string][]string {
	known := map[string][]string{
		"ALERTS": {"alertname", "alertstate"}, "process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil, "go_goroutines": nil,
	}
	for _, section := range metric.Catalogue() {
		for _, definition := range section.Metrics {
			if definition.Type == metric.Histogram {
				for _, suffix := range []string{"_count", "_sum"} {
					known[definition.Name+suffix] = definition.Labels
				}
				known[definition.Name+"_bucket"] = append([]string{"le"}, definition.Labels...)
				continue
			}
			known[definition.Name] = definition.Labels
		}
	}
	return known
}

// selectors returns the series that a query reads, by name, with the labels that it asks for.
func selectors(t *testing.T, query string) map[string][]string {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return nil
	}
	found := map[string][]string{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found[selector.Name] = append(found[selector.Name], names(selector.LabelMatchers)...)
		}
		return nil
	})
	return found
}

func names(matchers []*labels.Matcher) []string {
	var names []string
	for _, matcher := range matchers {
		if matcher.Name != model.MetricNameLabel {
			names = append(names, matcher.Name)
		}
	}
	return names
}

// requireReported fails unless what a query reads is reported, and returns the names of that.
func requireReported(t *testing.T, where, query string) []string {
	t.Helper()
	known := declared()
	var read []string
	for name, asked := range selectors(t, query) {
		has, isDeclared := known[name]
		if !isDeclared {
			t.Errorf("%s reads %s, which is not reported", where, name)
		}
		for _, label := range asked {
			if !slices.Contains(has, label) {
				t.Errorf("%s asks for the label %s of %s, which has none", where, label, name)
			}
		}
		read = append(read, strings.TrimSuffix(name, "_bucket"))
	}
	return read
}

func TestQueriesReadWhatIsReported(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			for _, name := range requireReported(t, p.Title, filled(target.Expr)) {
				shown[name] = true
			}
		}
	}
	for _, section := range metric.Catalogue() {
		for _, definition := range section.Metrics {
			if !shown[definition.Name] {
				t.Errorf("no panel shows %s", definition.Name)
			}
		}
	}
	for _, alert := range alerts(t) {
		requireReported(t, alert.Alert, alert.Expr)
	}
}

func TestVariablesAndAnnotationsReadWhatIsReported(t *testing.T) {
	board := readDashboard(t)
	for _, annotation := range board.Annotations.List {
		requireReported(t, annotation.Name, annotation.Expr)
	}
	for _, variable := range board.Templating.List {
		if variable.Type != "query" {
			continue
		}
		query, _ := variable.Query.(map[string]any)
		text, _ := query["query"].(string)
		parts := labelValues.FindStringSubmatch(text)
		if parts == nil {
			t.Errorf("the variable %s asks for %q, want label_values(SERIES, LABEL)", variable.Name, text)
			continue
		}
		// The label as a matcher is checked like those of the queries.
		requireReported(t, variable.Name, fmt.Sprintf("%s{%s!=%q}", parts[1], parts[2], ""))
	}
	if len(board.Annotations.List) != 1 || len(board.Templating.List) != 2 {
		t.Errorf("the dashboard has %d annotations and %d variables", len(board.Annotations.List), len(board.Templating.List))
	}
}

// labelValues is the one query of variables that the dashboard uses, on a series without matchers.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
