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

// TestEachAlertIsTested breaks each alert in turn: one that never fires, one that fires whatever happens, and
// one that fires at once must each fail a test.
func TestEachAlertIsTested(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(folder, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	rules, tests := filepath.Join(temporary, "alerts.yaml"), filepath.Join(temporary, "tests.yaml")
	breakages := map[string]func(alert map[string]any){
		"never fires":         func(alert map[string]any) { alert["expr"] = "vector(0) > 1" },
		"fires in all states": func(alert map[string]any) { alert["expr"] = `count({__name__=~".+"}) > 0`; delete(alert, "for") },
		"fires at once":       func(alert map[string]any) { delete(alert, "for") },
	}
	for i, alert := range alerts(t) {
		for name, breakage := range breakages {
			if name == "fires at once" && alert.For == "" {
				continue
			}
			t.Run(alert.Alert+" "+name, func(t *testing.T) {
				var file map[string]any
				if err := yaml.Unmarshal(source, &file); err != nil {
					t.Fatal(err)
				}
				broken := ruleAt(file, i)
				breakage(broken)
				writeYAML(t, rules, map[string]any{"groups": []any{map[string]any{"name": "broken", "rules": []any{broken}}}})
				writeYAML(t, tests, testsOf(t, alert.Alert, rules))
				if output, err := promtool(t, "test", "rules", tests); err == nil {
					t.Errorf("no test notices it:\n%s", output)
				}
			})
		}
	}
}

// testsOf returns the tests of one alert, for the rules in the file.
func testsOf(t *testing.T, alert, rules string) map[string]any {
	t.Helper()
	var file map[string]any
	readYAML(t, "testdata/alerts_test.yaml", &file)
	file["rule_files"] = []string{rules}
	var own []any
	for _, test := range file["tests"].([]any) {
		if name, _ := test.(map[string]any)["name"].(string); strings.HasPrefix(name, alert+": ") {
			own = append(own, test)
		}
	}
	file["tests"] = own
	return file
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

// ruleAt returns the rule with the number, counted over all groups.
func ruleAt(file map[string]any, number int) map[string]any {
	for _, group := range file["groups"].([]any) {
		rules := group.(map[string]any)["rules"].([]any)
		if number < len(rules) {
			return rules[number].(map[string]any)
		}
		number -= len(rules)
	}
	return nil
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
