// Package report judges what benchmarks have measured, prints it, and writes it into the documentation.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"forrst.dev/lock-operator/test/bench/measure"
)

// Report is the table of a run.
type Report struct {
	rows []*row
	// failures are the errors of scenarios that could not be measured.
	failures []string
	models   []Model
	notes    []string
}

// row is one contender in one scenario, or figures without a contender.
type row struct {
	scenario, contender string
	// cells are the measurements, by column.
	cells [columns]string
	// result is nil for figures without a contender.
	result  *measure.Result
	figures []Figure
}

// columns is how many measurements a row has.
const columns = 10

// headings name them.
var headings = [columns]string{"cycles/s", "p50 ms", "p99 ms", "writes", "reads", "API", "etcd", "operator", "echo", "clients"}

// legend explains the headings.
const legend = "writes, reads: requests to the API server per cycle; API, etcd, operator, echo, clients: their processor time in ms per cycle"

// Add appends a contender's result with the figures that depend on it.
func (r *Report) Add(result *measure.Result, figures ...Figure) {
	cycles := float64(max(1, len(result.Total.Latencies)))
	perCycle := func(program string) string {
		return fmt.Sprintf("%.2f", measure.Milliseconds(result.Usage[program])/cycles)
	}
	added := &row{scenario: result.Comparison.Name, contender: result.Contender, result: result, figures: figures}
	latencies := result.Total.Latencies
	added.cells = [...]string{
		fmt.Sprintf("%.0f", measure.Each(result, measure.Rate).Median),
		fmt.Sprintf("%.2f", measure.Milliseconds(measure.Quantile(latencies, 0.5))),
		fmt.Sprintf("%.2f", measure.Milliseconds(measure.Quantile(latencies, 0.99))),
		"-", "-", perCycle(measure.APIServerProgram), perCycle(measure.EtcdProgram), perCycle(measure.OperatorProgram),
		perCycle(measure.EchoProgram), perCycle(measure.ClientProgram),
	}
	if result.Counted > 0 {
		counted := float64(result.Counted)
		added.cells[3] = fmt.Sprintf("%.2f", result.Requests.Writes/counted)
		added.cells[4] = fmt.Sprintf("%.2f", result.Requests.Reads/counted)
	}
	r.rows = append(r.rows, added)
}

// Note appends a row without measurements of cycles.
func (r *Report) Note(scenario, contender string, figures ...Figure) {
	r.rows = append(r.rows, &row{scenario: scenario, contender: contender, figures: figures})
}

// Fail notes a scenario that could not be measured, which counts as missed.
func (r *Report) Fail(scenario string, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s: not measured: %v", scenario, err))
}

// Remark appends a sentence about the run.
func (r *Report) Remark(sentence string) { r.notes = append(r.notes, sentence) }

// figures returns all figures with the names of their scenarios.
func (r *Report) figures() []namedFigure {
	var all []namedFigure
	for _, row := range r.rows {
		for _, figure := range row.figures {
			all = append(all, namedFigure{row.scenario, row.contender, figure})
		}
	}
	return all
}

type namedFigure struct {
	scenario, contender string
	Figure
}

// Missed returns how many figures miss their bounds, with scenarios that could not be measured.
func (r *Report) Missed() int { return r.count(Missed) + len(r.failures) }

// Unjudged returns how many figures the machine was too busy for.
func (r *Report) Unjudged() int { return r.count(Busy) }

func (r *Report) count(verdict Verdict) int {
	count := 0
	for _, figure := range r.figures() {
		if figure.Verdict() == verdict {
			count++
		}
	}
	return count
}

// Print writes the report as plain text.
func (r *Report) Print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tcontender\t"+strings.Join(headings[:], "\t")+"\tfigure\tgot\tspread\tbound\t")
	scenario := ""
	for _, row := range r.rows {
		name := row.scenario
		if name == scenario {
			name = ""
		}
		scenario = row.scenario
		line := name + "\t" + row.contender + "\t" + strings.Join(row.cells[:], "\t")
		if len(row.figures) == 0 {
			fmt.Fprintln(table, line+"\t\t\t\t\t")
		}
		for _, figure := range row.figures {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", line, figure.What, figure.got(), figure.spread(), figure.bounds(">=", "<="), figure.Verdict())
			line = strings.Repeat("\t", columns+1)
		}
	}
	_ = table.Flush() // output that cannot be written has no other place to go
	for _, line := range append(r.modelLines(), append(r.notes, r.failures...)...) {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out, "\n"+legend)
	if disturbed := r.disturbance(); disturbed != "" {
		fmt.Fprintln(out, disturbed)
	}
}

// disturbance says how busy the machine was. Empty if it was quiet.
func (r *Report) disturbance() string {
	rounds, disturbed, example := 0, 0, ""
	for _, row := range r.rows {
		if row.result == nil {
			continue
		}
		for _, round := range row.result.Rounds {
			rounds++
			if round.Disturbance != "" {
				disturbed++
				example = round.Disturbance
			}
		}
	}
	if disturbed == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d turns were disturbed, for example because %s.", disturbed, rounds, example)
}
