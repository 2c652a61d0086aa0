package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// figure is a measured number with its bounds.
type figure struct {
	what   string
	spread spread
	// least and most are the bounds; NaN means none.
	least, most float64
	unit        string
}

// atLeast returns a figure with a lower bound.
func atLeast(what string, got spread, least float64) figure {
	return figure{what, got, least, math.NaN(), ""}
}

// atMost returns a figure with an upper bound.
func atMost(what string, got spread, most float64, unit string) figure {
	return figure{what, got, math.NaN(), most, unit}
}

// noted returns a number without bounds.
func noted(what string, got spread, unit string) figure {
	return figure{what, got, math.NaN(), math.NaN(), unit}
}

// when returns the figure, without its bounds unless they hold.
func (f figure) when(hold bool) figure {
	if hold {
		return f
	}
	return noted(f.what, f.spread, f.unit)
}

// verdict is what a figure says about its bounds.
type verdict string

const (
	unbounded verdict = ""
	passed    verdict = "pass"
	missed    verdict = "MISSED"
	unjudged  verdict = "not judged: busy"
)

// verdict judges the figure, unless the machine was too busy for it.
func (f figure) verdict() verdict {
	got := f.spread.median
	switch {
	case math.IsNaN(got):
		return missed
	case math.IsNaN(f.least) && math.IsNaN(f.most):
		return unbounded
	case f.spread.isBusy:
		return unjudged
	case got < f.least || got > f.most:
		return missed
	}
	return passed
}

func (f figure) bound() string {
	switch {
	case !math.IsNaN(f.least):
		return fmt.Sprintf("at least %g%s", f.least, f.unit)
	case !math.IsNaN(f.most):
		return fmt.Sprintf("at most %g%s", f.most, f.unit)
	}
	return ""
}

func (f figure) quartiles() string {
	if f.spread.rounds <= 1 {
		return ""
	}
	return fmt.Sprintf("%s to %s, %d rounds", number(f.spread.low), number(f.spread.high), f.spread.rounds)
}

// number returns a number with three digits that count, or all of its whole ones.
func number(value float64) string {
	switch size := math.Abs(value); {
	case math.IsNaN(value):
		return "-"
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// report is the tables of a run. The zero value is empty.
type report struct {
	rows     []*result
	figures  [][]string
	counts   map[verdict]int
	failures []string
}

// add appends rows.
func (r *report) add(results ...*result) { r.rows = append(r.rows, results...) }

// judge appends figures that depend on a result.
func (r *report) judge(result *result, figures ...figure) {
	r.note(result.scenario, result.contender, figures...)
}

// note appends figures.
func (r *report) note(scenario, contender string, figures ...figure) {
	if r.counts == nil {
		r.counts = map[verdict]int{}
	}
	for _, figure := range figures {
		verdict := figure.verdict()
		r.counts[verdict]++
		r.figures = append(r.figures, []string{
			scenario, contender + ": " + figure.what, figure.bound(), number(figure.spread.median) + figure.unit, figure.quartiles(), string(verdict),
		})
	}
}

// fail notes a scenario that could not be measured, which counts as missed.
func (r *report) fail(scenario string, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s: not measured: %v", scenario, err))
}

// verdict is nil if all figures keep their bounds.
func (r *report) verdict() error {
	missed, unjudged := r.counts[missed]+len(r.failures), r.counts[unjudged]
	if missed+unjudged == 0 {
		return nil
	}
	return fmt.Errorf("%d figures miss their bounds or could not be measured; the machine was too busy to judge %d", missed, unjudged)
}

// programs are those of the columns of processor times.
var programs = []string{apiServerProgram, etcdProgram, operatorProgram, clientProgram}

// markdown returns the report: the figures, and a row for each contender.
func (r *report) markdown() string {
	var out bytes.Buffer
	table(&out, []string{"scenario", "figure", "bound", "measured", "quartiles", "verdict"}, r.figures)
	var rows [][]string
	for _, result := range r.rows {
		quantile := func(part float64) string {
			return fmt.Sprintf("%.2f", milliseconds(quantile(result.total.latencies, part)))
		}
		row := []string{result.scenario, result.contender, fmt.Sprintf("%.0f", each(rate, result).median), quantile(0.5), quantile(0.99), "-", "-"}
		if result.requests != nil {
			row[5], row[6] = fmt.Sprintf("%.2f", result.requests.writes), fmt.Sprintf("%.2f", result.requests.reads)
		}
		for _, program := range programs {
			row = append(row, fmt.Sprintf("%.2f", each(processorTime(program), result).median))
		}
		rows = append(rows, row)
	}
	table(&out, []string{"scenario, clients", "contender", "cycles/s", "p50 ms", "p99 ms", "writes", "reads", "API", "etcd", "operator", "clients"}, rows)
	for _, failure := range r.failures {
		fmt.Fprintf(&out, "%s\n\n", failure)
	}
	return out.String()
}

// table writes a table with aligned columns, unless it is empty.
func table(out *bytes.Buffer, headings []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	writer := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(writer, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	line(headings)
	line(strings.Split(strings.Repeat("---,", len(headings)-1)+"---", ","))
	for _, row := range rows {
		line(row)
	}
	_ = writer.Flush() // a buffer takes everything
	out.WriteByte('\n')
}

// replace returns the page with the section between its markers replaced. The markers are comments, such as
// <!-- bench speed --> and <!-- /bench speed -->.
func replace(page, name, section string) (string, error) {
	begin, end := "<!-- bench "+name+" -->\n", "<!-- /bench "+name+" -->\n"
	before, rest, ok := strings.Cut(page, begin)
	_, after, isEnded := strings.Cut(rest, end)
	if !ok || !isEnded {
		return "", fmt.Errorf("the page lacks the markers of %s", name)
	}
	return before + begin + "\n" + strings.TrimSpace(section) + "\n\n" + end + after, nil
}
