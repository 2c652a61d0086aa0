package observability_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool runs the promtool beside the Prometheus of the environment, and returns its output.
func promtool(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	prometheus := os.Getenv("PROMETHEUS")
	if prometheus == "" {
		t.Fatal(`PROMETHEUS names no Prometheus; run "make observe-test"`)
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(prometheus), "promtool"), arguments...).CombinedOutput()
	return string(output), err
}

func TestRulesAreValid(t *testing.T) {
	if output, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(folder, "alerts.yaml")); err != nil {
		t.Error(output)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	if output, err := promtool(t, "test", "rules", "testdata/alerts_test.yaml"); err != nil {
		t.Error(output)
	}
}

// A testFile is a file of tests for promtool.
type testFile struct {
	RuleFiles          []string         `json:"rule_files"`
	EvaluationInterval string           `json:"evaluation_interval"`
	Tests              []map[string]any `json:"tests"`
}

// breakages are what an alert may become without a reader noticing.
var breakages = map[string]func(*rule){
	"never fires":         func(alert *rule) { alert.Expr = "vector(0) > 1" },
	"fires in all states": func(alert *rule) { alert.Expr, alert.For = `count({__name__=~".+"}) > 0`, "" },
	"fires at once":       func(alert *rule) { alert.For = "" },
}

// TestEachAlertIsTested breaks each alert in turn, which one of its tests must notice.
func TestEachAlertIsTested(t *testing.T) {
	var tests testFile
	readYAML(t, "testdata/alerts_test.yaml", &tests)
	temporary := t.TempDir()
	rulesPath, testsPath := filepath.Join(temporary, "alerts.yaml"), filepath.Join(temporary, "tests.yaml")
	for _, alert := range alerts(t) {
		own := testFile{RuleFiles: []string{rulesPath}, EvaluationInterval: tests.EvaluationInterval}
		for _, test := range tests.Tests {
			if name, _ := test["name"].(string); strings.HasPrefix(name, alert.Alert+": ") {
				own.Tests = append(own.Tests, test)
			}
		}
		writeYAML(t, testsPath, own)
		for name, breakage := range breakages {
			if name == "fires at once" && alert.For == "" {
				continue
			}
			t.Run(alert.Alert+" "+name, func(t *testing.T) {
				broken := alert
				breakage(&broken)
				writeYAML(t, rulesPath, ruleFile{Groups: []ruleGroup{{Name: "broken", Rules: []rule{broken}}}})
				if output, err := promtool(t, "test", "rules", testsPath); err == nil {
					t.Errorf("no test notices it:\n%s", output)
				}
			})
		}
	}
}

func writeYAML(t *testing.T, path string, value any) {
	t.Helper()
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#{2,} (.+)$`)
	// dropped is what a heading's anchor lacks.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns those of a page of docs, as they are made from its headings.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range heading.FindAllStringSubmatch(string(content), -1) {
		found = append(found, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return found
}

func TestEachAlertSaysWhatToDo(t *testing.T) {
	var linked []string
	for _, alert := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning"}, alert.Labels["severity"]) {
			t.Errorf("%s has the severity %q", alert.Alert, alert.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if !strings.HasSuffix(alert.Annotations[name], ".") {
				t.Errorf("%s has no sentence as its %s", alert.Alert, name)
			}
		}
		page, anchor, _ := strings.Cut(strings.TrimPrefix(alert.Annotations["runbook_url"], "https://forrst.dev/lock-operator/docs/"), "#")
		if !slices.Contains(anchors(t, page), anchor) {
			t.Errorf("the runbook of %s, %s, has no section %q", alert.Alert, page, anchor)
		}
		linked = append(linked, anchor)
	}
	for _, anchor := range anchors(t, "alerts.md") {
		if !slices.Contains(linked, anchor) {
			t.Errorf("docs/alerts.md has a section %s of no alert", anchor)
		}
	}
}

// parts are what each section of a runbook has.
var parts = []string{"**You see**", "**Cause.**", "**What to do.**", "**It is well again**"}

func TestRunbooksHaveOneForm(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(content), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		last := 0
		for _, part := range parts {
			at := strings.Index(text, part)
			if at < last {
				t.Errorf("%s has %q not at all, or too early", title, part)
			}
			last = max(last, at)
		}
	}
}
