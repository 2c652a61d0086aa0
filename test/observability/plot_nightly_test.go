//go:build nightly

package observability_test

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plot is a panel as a drawing.
type plot struct {
	title, unit string
	lines       []line
}

type line struct {
	name   string
	points []point
}

// Sizes in pixels.
const (
	plotWidth, plotHeight    = 720, 300
	left, right, top, bottom = 64, 16, 34, 30
	legendRow, legendColumns = 16, 3
	maxLines                 = 12
	innerWidth               = plotWidth - left - right
	plotStyle                = `text{font:12px system-ui,sans-serif;fill:#444}.grid{stroke:#8884;fill:none}.line{fill:none;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#ccc}}`
)

// colors are told apart by most readers, in light and in dark.
var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#ee7733", "#009988", "#cc3311", "#332288", "#bb5566"}

// svg draws the lines that are highest.
func (p *plot) svg() []byte {
	slices.SortFunc(p.lines, func(a, b line) int { return cmp.Or(cmp.Compare(b.highest(), a.highest()), cmp.Compare(a.name, b.name)) })
	// What never happened would only fill the legend.
	p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return l.highest() == 0 })
	shown := p.lines[:min(len(p.lines), maxLines)]
	highest, from, to := 0.0, time.Time{}, time.Time{}
	for _, l := range shown {
		highest = max(highest, l.highest())
		for _, at := range l.points {
			if from.IsZero() || at.at.Before(from) {
				from = at.at
			}
			if at.at.After(to) {
				to = at.at
			}
		}
	}
	step := niceStep(highest / 4)
	ceiling := max(step, math.Ceil(highest/step)*step)
	x := func(at time.Time) float64 {
		return left + innerWidth*at.Sub(from).Seconds()/max(1, to.Sub(from).Seconds())
	}
	y := func(value float64) float64 { return plotHeight - bottom - (plotHeight-top-bottom)*value/ceiling }

	var out strings.Builder
	height := plotHeight + legendRow*((len(shown)+legendColumns-1)/legendColumns)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label=%q>`+"\n<style>%s</style>\n", plotWidth, height, p.title, plotStyle)
	fmt.Fprintf(&out, `<text x="%d" y="20" font-weight="bold">%s</text>`+"\n", left, html.EscapeString(p.title))
	for value := 0.0; value <= ceiling+step/2; value += step {
		fmt.Fprintf(&out, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(value), plotWidth-right, left-6, y(value)+4, format(value, p.unit))
	}
	for second := 0.0; second <= to.Sub(from).Seconds(); second += niceStep(to.Sub(from).Seconds() / 6) {
		at := from.Add(time.Duration(second * float64(time.Second)))
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" text-anchor="middle">%g s</text>`+"\n", x(at), plotHeight-10, second)
	}
	for i, l := range shown {
		fmt.Fprintf(&out, `<path class="line" stroke="%s" d="`, colors[i])
		operation := "M"
		for _, at := range l.points {
			if math.IsNaN(at.value) {
				operation = "M"
				continue
			}
			fmt.Fprintf(&out, "%s%.1f %.1f", operation, x(at.at), y(at.value))
			operation = "L"
		}
		legendX, legendY := left+innerWidth/legendColumns*(i%legendColumns), plotHeight+4+legendRow*(i/legendColumns)
		fmt.Fprintf(&out, `"/>`+"\n"+`<path class="line" stroke="%s" d="M%d %dh12"/><text x="%d" y="%d">%s</text>`+"\n",
			colors[i], legendX, legendY-4, legendX+18, legendY, html.EscapeString(l.name))
	}
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

func (l *line) highest() float64 {
	highest := 0.0
	for _, at := range l.points {
		if !math.IsNaN(at.value) {
			highest = max(highest, at.value)
		}
	}
	return highest
}

// niceStep returns the next larger of 1, 2 and 5 times a power of ten.
func niceStep(atLeast float64) float64 {
	if atLeast <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(atLeast)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= atLeast {
			return factor * power
		}
	}
	return 10 * power
}

func format(value float64, unit string) string {
	text := strconv.FormatFloat(value, 'g', 3, 64)
	switch unit {
	case "s":
		return time.Duration(value * float64(time.Second)).Round(10 * time.Microsecond).String()
	case "ops":
		return text + "/s"
	default:
		return text
	}
}
