// Command observability derives what Grafana, the Prometheus operator and readers get from the alert rules
// in config/observability/alerts.yaml and from the panels that it declares: a PrometheusRule, the table of
// docs/alerts.md, and the dashboard. "make generate" runs it in the root of the module.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	folder     = "config/observability"
	alertsPage = "docs/alerts.md"
	// chartFiles gets copies, since a chart contains all that it installs.
	chartFiles = "charts/lock-operator/files"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

func run() error {
	source, err := os.ReadFile(filepath.Join(folder, "alerts.yaml"))
	if err != nil {
		return err
	}
	alerts, err := parseAlerts(source)
	if err != nil {
		return fmt.Errorf("alerts.yaml: %w", err)
	}
	rule, err := prometheusRule(source)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(alertsPage)
	if err != nil {
		return err
	}
	filled, err := fillTable(string(page), alerts)
	if err != nil {
		return fmt.Errorf("%s: %w", alertsPage, err)
	}
	board, err := dashboard()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(folder, "prometheus_rule.yaml"): rule,
		filepath.Join(folder, "dashboard.json"):       board,
		alertsPage:                                    []byte(filled),
	}
	if _, err := os.Stat(filepath.Dir(chartFiles)); err == nil {
		files[filepath.Join(chartFiles, "alerts.yaml")] = source
		files[filepath.Join(chartFiles, "dashboard.json")] = board
		if err := os.MkdirAll(chartFiles, 0o755); err != nil {
			return err
		}
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
