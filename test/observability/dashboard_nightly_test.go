//go:build nightly

package observability_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// orZero ends the queries that have no series in quiet times.
const orZero = " or on () vector(0)"

// quiet are the panels that have nothing to show but a zero unless there is trouble.
var quiet = []string{
	"Alerts that fire", "Calls refused for a limit", "Failed requests to the API server", "Unanswered writes", "Reviews refused unjudged",
}

// calm are the panels that may show nothing but zeros under load: nothing is wrong, there is one replica, and the one Job
// that starts does so before the first look.
var calm = []string{
	"Connections closed, requests ended", "Limits used up for", "A free lock is waited for", "Watch not trusted for", "Watches that differ",
	"Exemptions of the webhook", "Audit", "Replicas that share lines", "Locks of Jobs",
}

// plotted are the panels in docs/observability.md.
var plotted = map[string]string{
	"Grants and ends": "grants", "Acquires by outcome": "outcomes", "Time to acquire a free lock": "free", "Time to acquire a held lock": "held",
	"Callers that wait": "waiters", "Requests to the API server": "requests",
}

// loadFor is how long the cluster is used before the panels are looked at.
const loadFor = 30 * time.Second

// commands is a block of shell commands of a page.
var commands = regexp.MustCompile("(?s)\n```sh\n(.*?\n)```\n")

// TestNightlyOnACluster shows all panels, evaluates all rules and runs all commands of docs/alerts.md on a cluster
// under load. With PLOTS=FOLDER it draws the main panels there.
func TestNightlyOnACluster(t *testing.T) {
	on := startCluster(t)
	duration := loadFor
	folder := os.Getenv("PLOTS")
	if folder != "" {
		duration *= 4
	}
	began := putLoad(t, on, duration)
	now := time.Now()

	for _, p := range panels(t) {
		t.Run(p.Title, func(t *testing.T) { requireSeries(t, on, p) })
		name, isPlotted := plotted[p.Title]
		if folder == "" || !isPlotted || p.Type != "timeseries" {
			continue
		}
		drawn := plot{title: p.Title, unit: p.FieldConfig.Defaults.Unit}
		for _, target := range p.Targets {
			found, err := on.queryRange(t.Context(), filled(strings.TrimSuffix(target.Expr, orZero)), began, now, scrapeInterval)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range found {
				drawn.lines = append(drawn.lines, line{s.name(target.LegendFormat), s.points})
			}
		}
		if err := os.WriteFile(filepath.Join(folder, name+".svg"), drawn.svg(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("namespaces", func(t *testing.T) {
		if found, err := on.query(t.Context(), `lock_operator_locks{namespace="payments"}`); err != nil || len(found) == 0 {
			t.Errorf("the metrics do not keep the namespaces of the locks: %v", err)
		}
	})
	t.Run("rules", func(t *testing.T) { requireRules(t, on) })
	t.Run("kube-state-metrics", func(t *testing.T) { requireStateMetrics(t, on) })
	t.Run("commands", func(t *testing.T) { runCommands(t, on) })
}

// requireSeries fails if a query of the panel has no series, or shows nothing but zeros under load.
func requireSeries(t *testing.T, on *cluster, p panel) {
	t.Helper()
	for _, target := range p.Targets {
		query := target.Expr
		if slices.Contains(quiet, p.Title) {
			if !strings.HasSuffix(query, orZero) && !strings.HasPrefix(query, "sum(") {
				t.Errorf("%s would show nothing in quiet times", query)
			}
		} else {
			query = strings.TrimSuffix(query, orZero)
		}
		found, err := on.query(t.Context(), filled(query))
		if err != nil {
			t.Error(err)
		} else if len(found) == 0 {
			t.Errorf("it shows nothing of %s", query)
		}
		if slices.Contains(quiet, p.Title) || slices.Contains(calm, p.Title) {
			continue
		}
		overload := fmt.Sprintf("max_over_time((%s)[%s:%s]) != 0", filled(query), loadFor, scrapeInterval)
		if found, err := on.query(t.Context(), overload); err != nil {
			t.Error(err)
		} else if len(found) == 0 {
			t.Errorf("under load it shows only zeros of %s", query)
		}
	}
}

// requireRules fails unless Prometheus evaluates all rules, of which none would fire on a cluster that works. Most fire
// after minutes, so it looks for those whose condition has held for a while.
func requireRules(t *testing.T, on *cluster) {
	t.Helper()
	found, err := on.query(t.Context(), `ALERTS{alertstate="firing"} or sum_over_time(ALERTS{alertstate="pending"}[15s:1s]) >= 15`)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range found {
		t.Errorf("%s is %s: %v", alert.Metric["alertname"], alert.Metric["alertstate"], alert.Metric)
	}
	requireHealthy(t, on)
}

func requireHealthy(t *testing.T, on *cluster) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, on.Prometheus+"/api/v1/rules", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name      string `json:"name"`
					Health    string `json:"health"`
					LastError string `json:"lastError"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			count++
			if rule.Health != "ok" {
				t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	if want := len(alerts(t)); count != want {
		t.Errorf("Prometheus has %d rules, want %d", count, want)
	}
}

// runCommands runs the commands of docs/alerts.md.
func runCommands(t *testing.T, on *cluster) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := commands.FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no commands")
	}
	// The page's sample is held since the load began.
	if output, err := on.shell(t.Context(), "kubectl delete --filename config/samples/lock.yaml"); err != nil {
		t.Fatal(output)
	}
	for _, block := range blocks {
		if output, err := on.shell(t.Context(), block[1]); err != nil {
			t.Errorf("%s\n%s", block[1], output)
		}
	}
}
