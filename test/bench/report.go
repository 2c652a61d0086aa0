package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// report is the table of a run.
type report struct {
	rows []*row
	// failures are the errors of scenarios that could not be measured.
	failures []string
}

// row is one contender in one scenario, or figures without a contender.
type row struct {
	scenario, contender string
	// cells are the measurements, by column.
	cells   [10]string
	figures []figure
}

// figure is a measured number with its bounds.
type figure struct {
	what string
	got  float64
	// least and most are the bounds; NaN means none.
	least, most float64
	unit        string
}

func atLeast(what string, got, least float64) figure {
	return figure{what: what, got: got, least: least, most: math.NaN()}
}

func atMost(what string, got, most float64, unit string) figure {
	return figure{what: what, got: got, least: math.NaN(), most: most, unit: unit}
}

// noted is a number without bounds.
func noted(what string, got float64, unit string) figure {
	return figure{what: what, got: got, least: math.NaN(), most: math.NaN(), unit: unit}
}

// isMissed reports whether the number misses a bound, or could not be determined.
func (f figure) isMissed() bool { return math.IsNaN(f.got) || f.got < f.least || f.got > f.most }

func (f figure) verdict() string {
	switch {
	case f.isMissed():
		return "FAIL"
	case f.bounds() == "":
		return ""
	}
	return "PASS"
}

func (f figure) bounds() string {
	var bounds []string
	if !math.IsNaN(f.least) {
		bounds = append(bounds, fmt.Sprintf(">= %g%s", f.least, f.unit))
	}
	if !math.IsNaN(f.most) {
		bounds = append(bounds, fmt.Sprintf("<= %g%s", f.most, f.unit))
	}
	return strings.Join(bounds, ", ")
}

// add appends a contender's result with the figures that depend on it.
func (r *report) add(result *result, figures ...figure) {
	cycles := float64(max(1, len(result.total.latencies)))
	perCycle := func(program string) string {
		return fmt.Sprintf("%.2f", milliseconds(result.usage[program])/cycles)
	}
	added := &row{scenario: result.comparison.name, contender: result.contender, figures: figures}
	latencies := result.total.latencies
	added.cells = [...]string{
		fmt.Sprintf("%.0f", median(result.rates)),
		fmt.Sprintf("%.2f", milliseconds(quantile(latencies, 0.5))),
		fmt.Sprintf("%.2f", milliseconds(quantile(latencies, 0.99))),
		"-", "-", perCycle("kube-apiserver"), perCycle("etcd"), perCycle("lock-operator"), perCycle(echoProgram), perCycle(clientProgram),
	}
	if result.counted > 0 {
		counted := float64(result.counted)
		added.cells[3] = fmt.Sprintf("%.2f", result.requests.writes/counted)
		added.cells[4] = fmt.Sprintf("%.2f", result.requests.reads/counted)
	}
	r.rows = append(r.rows, added)
}

// note appends a row without measurements of cycles.
func (r *report) note(scenario, contender string, figures ...figure) {
	r.rows = append(r.rows, &row{scenario: scenario, contender: contender, figures: figures})
}

// fail notes a scenario that could not be measured, which counts as missed.
func (r *report) fail(scenario string, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s: not measured: %v", scenario, err))
}

func (r *report) missed() bool {
	for _, row := range r.rows {
		for _, figure := range row.figures {
			if figure.isMissed() {
				return true
			}
		}
	}
	return len(r.failures) > 0
}

func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tcontender\tcycles/s\tp50 ms\tp99 ms\twrites\treads\tAPI\tetcd\toperator\techo\tclients\tfigure\tgot\tbound\t")
	scenario := ""
	for _, row := range r.rows {
		name := row.scenario
		if name == scenario {
			name = ""
		}
		scenario = row.scenario
		line := name + "\t" + row.contender + "\t" + strings.Join(row.cells[:], "\t")
		if len(row.figures) == 0 {
			fmt.Fprintln(table, line+"\t\t\t\t")
		}
		for _, figure := range row.figures {
			fmt.Fprintf(table, "%s\t%s\t%.2f%s\t%s\t%s\n", line, figure.what, figure.got, figure.unit, figure.bounds(), figure.verdict())
			line = strings.Repeat("\t", len(row.cells)+1)
		}
	}
	_ = table.Flush() // output that cannot be written has no other place to go
	for _, failure := range r.failures {
		fmt.Fprintln(out, failure)
	}
	fmt.Fprintln(out, "\nwrites, reads: requests to the API server per cycle; API, etcd, operator, echo, clients: their processor time in ms per cycle")
}
