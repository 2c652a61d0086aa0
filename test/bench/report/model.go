package report

import (
	"fmt"
	"math"
	"strings"
)

// Point is what was measured at a number of locks.
type Point struct{ Locks, Value float64 }

// Model says how something grows with the number of locks: a straight line.
type Model struct {
	What, Unit string
	// Base is the value without locks, PerLock what each lock adds.
	Base, PerLock float64
	// Points are those that the line was fitted to. None if it was computed from another measurement.
	Points []Point
	// Check is a measured point that the line was not fitted to. Without locks, there is none.
	Check Point
}

// Fit puts a line through the points, with the least squares of the relative distances, so the small points count as
// much as the large ones. The last point only checks it. With fewer than three points, ok is false.
func Fit(what, unit string, points []Point) (model Model, ok bool) {
	if len(points) < 3 {
		return Model{}, false
	}
	fitted, check := points[:len(points)-1], points[len(points)-1]
	var weights, x, y, xx, xy float64
	for _, point := range fitted {
		weight := 1 / math.Max(point.Value*point.Value, math.SmallestNonzeroFloat32)
		weights += weight
		x += weight * point.Locks
		y += weight * point.Value
		xx += weight * point.Locks * point.Locks
		xy += weight * point.Locks * point.Value
	}
	determinant := weights*xx - x*x
	if determinant == 0 {
		return Model{}, false
	}
	perLock := (weights*xy - x*y) / determinant
	return Model{What: what, Unit: unit, Base: (y - perLock*x) / weights, PerLock: perLock, Points: fitted, Check: check}, true
}

// At returns the value with so many locks.
func (m Model) At(locks float64) float64 { return m.Base + m.PerLock*locks }

// Miss returns by how much of the measured value the line misses the point that it was not fitted to. NaN without one.
func (m Model) Miss() float64 {
	if m.Check.Locks == 0 {
		return math.NaN()
	}
	return (m.At(m.Check.Locks) - m.Check.Value) / m.Check.Value
}

// check says how the line was checked.
func (m Model) check() string {
	if m.Check.Locks == 0 {
		return "computed"
	}
	return fmt.Sprintf("%+.0f %% at %.0f locks", 100*m.Miss(), m.Check.Locks)
}

// Model adds a model to the report.
func (r *Report) Model(model Model) { r.models = append(r.models, model) }

// Series adds the model of the points, if they are enough for one.
func (r *Report) Series(what, unit string, points []Point) {
	if model, ok := Fit(what, unit, points); ok {
		r.Model(model)
	}
}

// modelledLocks are the numbers of locks that the documentation has figures for.
var modelledLocks = []float64{100_000, 1_000_000}

func (r *Report) modelLines() []string {
	var lines []string
	for _, model := range r.models {
		var line strings.Builder
		fmt.Fprintf(&line, "model: %s:", model.What)
		for _, locks := range modelledLocks {
			fmt.Fprintf(&line, " %s %s with %.0f locks,", number(model.At(locks)), model.Unit, locks)
		}
		lines = append(lines, line.String()+" "+model.check())
	}
	return lines
}
