package report

import (
	"fmt"
	"math"
	"strings"

	"forrst.dev/lock-operator/test/bench/measure"
)

// Figure is a measured number with its bounds.
type Figure struct {
	What   string
	Spread measure.Spread
	// Least and Most are the bounds; NaN means none.
	Least, Most float64
	Unit        string
}

// AtLeast returns a figure with a lower bound.
func AtLeast(what string, got measure.Spread, least float64) Figure {
	return Figure{What: what, Spread: got, Least: least, Most: math.NaN()}
}

// AtMost returns a figure with an upper bound.
func AtMost(what string, got measure.Spread, most float64, unit string) Figure {
	return Figure{What: what, Spread: got, Least: math.NaN(), Most: most, Unit: unit}
}

// Between returns a figure with both bounds.
func Between(what string, got measure.Spread, least, most float64) Figure {
	return Figure{What: what, Spread: got, Least: least, Most: most}
}

// Noted returns a number without bounds.
func Noted(what string, got measure.Spread, unit string) Figure {
	return Figure{What: what, Spread: got, Least: math.NaN(), Most: math.NaN(), Unit: unit}
}

// Verdict is what a figure says about its bounds.
type Verdict string

// The verdicts.
const (
	// Unbounded is the verdict on a number without bounds.
	Unbounded Verdict = ""
	// Passed says that the median keeps the bounds.
	Passed Verdict = "pass"
	// Missed says that it does not, or that there is none.
	Missed Verdict = "MISSED"
	// Busy says that the machine was too busy for a verdict.
	Busy Verdict = "not judged: busy"
)

// Verdict judges the figure, unless the machine was too busy for it.
func (f Figure) Verdict() Verdict {
	got := f.Spread.Median
	switch {
	case math.IsNaN(got):
		return Missed
	case math.IsNaN(f.Least) && math.IsNaN(f.Most):
		return Unbounded
	case f.Spread.IsBusy:
		return Busy
	case got < f.Least || got > f.Most:
		return Missed
	}
	return Passed
}

// bounds returns the bounds as a text, with the words for "at least" and "at most".
func (f Figure) bounds(atLeast, atMost string) string {
	var bounds []string
	if !math.IsNaN(f.Least) {
		bounds = append(bounds, fmt.Sprintf("%s %g%s", atLeast, f.Least, f.Unit))
	}
	if !math.IsNaN(f.Most) {
		bounds = append(bounds, fmt.Sprintf("%s %g%s", atMost, f.Most, f.Unit))
	}
	return strings.Join(bounds, ", ")
}

// got returns the median with its unit.
func (f Figure) got() string { return number(f.Spread.Median) + f.Unit }

// spread returns the quartiles and the number of rounds that they are of.
func (f Figure) spread() string {
	switch f.Spread.Rounds {
	case 0:
		return "not measured"
	case 1:
		return "one round"
	}
	if math.IsNaN(f.Spread.Low) {
		return fmt.Sprintf("%d rounds together", f.Spread.Rounds)
	}
	return fmt.Sprintf("%s to %s, %d rounds", number(f.Spread.Low), number(f.Spread.High), f.Spread.Rounds)
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
