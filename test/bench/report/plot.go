package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"forrst.dev/lock-operator/test/bench/measure"
)

// Sizes of plots.
const (
	plotWidth = 18 * vg.Centimeter
	plotRow   = 0.75 * vg.Centimeter
	// smallText is the size of the names of rows and lines, which may be long.
	smallText = vg.Length(8)
)

// drawing is a plot as an SVG.
type drawing struct {
	file, title string
	content     []byte
}

// dot is a spread in a row of a plot.
type dot struct {
	row    string
	series string
	spread measure.Spread
}

// plots draws what the report has numbers for.
func (r *Report) plots() ([]drawing, error) {
	processor := measure.Processor(measure.APIServerProgram)
	var drawings []drawing
	for _, each := range []struct {
		file, title, axis string
		isLog             bool
		// scenario begins the names of the scenarios.
		scenario string
		value    func(measure.Round) float64
	}{
		{"distinct-keys", "Acquire and release of distinct keys", "per second", true, "distinct keys, ", measure.Rate},
		{"hot-key", "Hand-offs of a hot key", "per second", true, "hot key, ", measure.Rate},
		{"api-server", "Processor time of the API server per acquire and release", "ms", false, "distinct keys, ", processor},
		{"api-server-hot", "Processor time of the API server per hand-off", "ms", false, "hot key, ", processor},
	} {
		var dots []dot
		for _, row := range r.rows {
			clients, ok := strings.CutPrefix(row.scenario, each.scenario)
			if !ok || row.result == nil {
				continue
			}
			if spread := measure.Each(row.result, each.value); spread.Low > 0 {
				dots = append(dots, dot{row.contender, clients + " clients", spread})
			}
		}
		drawings = append(drawings, drawing{each.file, each.title, nil})
		if err := drawings[len(drawings)-1].draw(dots, each.axis, each.isLog, false); err != nil {
			return nil, err
		}
	}
	distances := drawing{file: "bounds", title: "Distance of each figure from its bound, 1 and more is within it"}
	if err := distances.draw(r.distances(), "times", true, true); err != nil {
		return nil, err
	}
	drawings = append(drawings, distances)
	for _, model := range r.models {
		if len(model.Points) == 0 {
			continue
		}
		content, err := model.draw()
		if err != nil {
			return nil, err
		}
		file := strings.ReplaceAll(strings.ToLower(strings.Map(func(r rune) rune {
			if r == ',' {
				return -1
			}
			return r
		}, model.What)), " ", "-")
		drawings = append(drawings, drawing{file, model.What, content})
	}
	return slices.DeleteFunc(drawings, func(d drawing) bool { return d.content == nil }), nil
}

// distances returns how many times better each figure is than its bound.
func (r *Report) distances() []dot {
	var dots []dot
	for _, figure := range r.figures() {
		spread, least, most := figure.Spread, figure.Least, figure.Most
		if math.IsNaN(spread.Median) || spread.Low <= 0 {
			continue
		}
		if math.IsNaN(spread.Low) {
			spread.Low, spread.High = spread.Median, spread.Median
		}
		switch {
		case !math.IsNaN(least) && least > 0 && math.IsNaN(most):
			spread.Median, spread.Low, spread.High = spread.Median/least, spread.Low/least, spread.High/least
		case !math.IsNaN(most) && most > 0:
			spread.Median, spread.Low, spread.High = most/spread.Median, most/spread.High, most/spread.Low
		default:
			continue
		}
		dots = append(dots, dot{fmt.Sprintf("%s: %s", figure.scenario, figure.What), string(figure.Verdict()), spread})
	}
	return dots
}

// draw draws the medians as dots with the quartiles as bars, a row each, the first one on top.
func (d *drawing) draw(dots []dot, axis string, isLog, marksOne bool) error {
	if len(dots) == 0 {
		return nil
	}
	var rows, series []string
	for _, each := range dots {
		if !slices.Contains(rows, each.row) {
			rows = append(rows, each.row)
		}
		if !slices.Contains(series, each.series) {
			series = append(series, each.series)
		}
	}
	slices.Reverse(rows)
	p := newPlot(d.title)
	p.X.Label.Text = axis
	if marksOne {
		line, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(rows)) - 0.5}})
		if err != nil {
			return err
		}
		p.Add(line)
	}
	p.Add(plotter.NewGrid())
	for position, name := range series {
		points := plotutil.ErrorPoints{}
		for _, each := range dots {
			if each.series != name {
				continue
			}
			// Series lie one below the other.
			offset := (float64(len(series)-1)/2 - float64(position)) * 0.6 / float64(len(series))
			points.XYs = append(points.XYs, plotter.XY{X: each.spread.Median, Y: float64(slices.Index(rows, each.row)) + offset})
			points.XErrors = append(points.XErrors, struct{ Low, High float64 }{each.spread.Low - each.spread.Median, each.spread.High - each.spread.Median})
		}
		bars, err := plotter.NewXErrorBars(points)
		if err != nil {
			return err
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		bars.Color, scatter.Color, scatter.Shape = plotutil.Color(position), plotutil.Color(position), draw.CircleGlyph{}
		p.Add(bars, scatter)
		if name != "" {
			p.Legend.Add(name, scatter)
		}
	}
	if isLog {
		// The library widens a narrow range to zero, which such a scale lacks.
		p.X.Min, p.X.Max = p.X.Min/1.2, p.X.Max*1.2
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	} else {
		p.X.Min = 0
	}
	p.NominalY(rows...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))+0.25
	var err error
	d.content, err = svg(p, plotRow*vg.Length(len(rows))+4*vg.Centimeter)
	return err
}

// draw draws the points and the line.
func (m Model) draw() ([]byte, error) {
	p := newPlot(m.What)
	p.X.Label.Text, p.Y.Label.Text = "locks", m.Unit
	p.X.Min, p.Y.Min = 0, 0
	fitted := make(plotter.XYs, 0, len(m.Points))
	for _, point := range m.Points {
		fitted = append(fitted, plotter.XY{X: point.Locks, Y: point.Value})
	}
	line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: m.Base}, {X: m.Check.Locks, Y: m.At(m.Check.Locks)}})
	if err != nil {
		return nil, err
	}
	used, err := plotter.NewScatter(fitted)
	if err != nil {
		return nil, err
	}
	check, err := plotter.NewScatter(plotter.XYs{{X: m.Check.Locks, Y: m.Check.Value}})
	if err != nil {
		return nil, err
	}
	line.Color, used.Color, check.Color = plotutil.Color(1), plotutil.Color(1), plotutil.Color(0)
	used.Shape, check.Shape = draw.CircleGlyph{}, draw.CircleGlyph{}
	p.Add(plotter.NewGrid(), line, used, check)
	p.Legend.Add("measured, and the line through it", used)
	p.Legend.Add("measured, not used for the line", check)
	p.Legend.Left = true
	return svg(p, 8*vg.Centimeter)
}

// logTicks returns 1, 2 and 5 times each power of ten in the range. The library labels the powers alone, of which a
// plot may have none.
func logTicks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Floor(math.Log10(least)); power <= math.Log10(most); power++ {
		for _, factor := range []float64{1, 2, 5} {
			if value := factor * math.Pow(10, power); value >= least && value <= most {
				ticks = append(ticks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'g', 6, 64)})
			}
		}
	}
	return ticks
}

// newPlot returns a plot with the letters of all of them.
func newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text = title
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size, p.Y.Tick.Label.Font.Size = smallText, smallText
	return p
}

func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	writer, err := p.WriterTo(plotWidth, height, "svg")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = writer.WriteTo(&out)
	return out.Bytes(), err
}
