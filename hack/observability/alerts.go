package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// An alert is what readers are told about a rule.
type alert struct {
	Alert       string `json:"alert"`
	For         string `json:"for"`
	Labels      map[string]string
	Annotations map[string]string
}

func parseAlerts(source []byte) ([]alert, error) {
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal(source, &file); err != nil {
		return nil, err
	}
	var alerts []alert
	for _, group := range file.Groups {
		alerts = append(alerts, group.Rules...)
	}
	if len(alerts) == 0 {
		return nil, errors.New("there are no rules")
	}
	return alerts, nil
}

// ruleHeader is the PrometheusRule without its groups.
const ruleHeader = `# Derived from alerts.yaml by "make generate".
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: lock-operator
  namespace: forrst-system
  labels:
    app.kubernetes.io/name: lock-operator
spec:
`

// prometheusRule returns the rules as an object for the Prometheus operator, with each line as it is.
func prometheusRule(source []byte) ([]byte, error) {
	_, groups, isThere := bytes.Cut(source, []byte("\ngroups:\n"))
	if !isThere {
		return nil, errors.New("alerts.yaml: there are no groups")
	}
	out := bytes.NewBufferString(ruleHeader + "  groups:\n")
	for line := range bytes.Lines(groups) {
		if len(bytes.TrimSpace(line)) > 0 {
			out.WriteString("  ")
		}
		out.Write(line)
	}
	return out.Bytes(), nil
}

// The table is between these lines.
const (
	tableBegin = "<!-- Written by \"make generate\". -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// fillTable replaces the table of a page.
func fillTable(page string, alerts []alert) (string, error) {
	before, rest, begins := strings.Cut(page, tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return "", errors.New("the lines around the table are missing")
	}
	var table strings.Builder
	table.WriteString("\n| alert, with what to do | severity | after | what it says |\n| --- | --- | --- | --- |\n")
	for _, a := range alerts {
		after := a.For
		if after == "" {
			after = "at once"
		}
		_, link, _ := strings.Cut(a.Annotations["runbook_url"], "/docs/")
		link = strings.TrimPrefix(link, "alerts.md")
		fmt.Fprintf(&table, "| [`%s`](%s) | %s | %s | %s |\n", a.Alert, link, a.Labels["severity"], after, a.Annotations["summary"])
	}
	table.WriteString("\n")
	return before + tableBegin + table.String() + tableEnd + after, nil
}
