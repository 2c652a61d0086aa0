package terminal

import (
	"io"
	"strings"
)

// Column is one of a [Table].
type Column struct {
	Header string
	// Least is the width to which the column may be cut to fit the table on the terminal.
	// Zero means that it is never cut.
	Least int
	// Fair is the width to which the column is cut only once all others are at their Fair. Zero
	// means Least.
	Fair int
}

// mostAligned bounds the width to which a column that may be cut is filled up in a pipe, where nothing is cut:
// one long cell must not widen all rows.
const mostAligned = 64

// gap is between two columns.
const gap = "   "

// Table writes rows below headers, as wide as a terminal. Its columns keep the width that
// earlier rows had, so that rows can be added below. The cells are cleaned.
type Table struct {
	Columns []Column
	// Width is the width of the terminal, in columns. Zero means any.
	Width int
	// NoHeaders leaves the headers out.
	NoHeaders bool

	natural []int
	begun   bool
}

// Write writes rows and, the first time, the headers.
func (t *Table) Write(out io.Writer, rows [][]string) error {
	clean := make([][]string, 0, len(rows)+1)
	if !t.begun && !t.NoHeaders {
		headers := make([]string, 0, len(t.Columns))
		for _, column := range t.Columns {
			headers = append(headers, column.Header)
		}
		clean = append(clean, headers)
	}
	for _, row := range rows {
		cells := make([]string, 0, len(row))
		for _, cell := range row {
			cells = append(cells, Clean(cell))
		}
		clean = append(clean, cells)
	}
	t.begun = true
	t.measure(clean)
	widths := t.widths()
	var text strings.Builder
	for _, row := range clean {
		var line strings.Builder
		for index, cell := range row {
			if index > 0 {
				line.WriteString(gap)
			}
			if t.Width > 0 {
				cell = Cut(cell, widths[index])
			}
			line.WriteString(Pad(cell, widths[index]))
		}
		text.WriteString(strings.TrimRight(line.String(), " "))
		text.WriteByte('\n')
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (t *Table) measure(rows [][]string) {
	if t.natural == nil {
		t.natural = make([]int, len(t.Columns))
	}
	for _, row := range rows {
		for index, cell := range row {
			width := Columns(cell)
			if t.Width == 0 && t.Columns[index].Least > 0 {
				width = min(width, mostAligned)
			}
			t.natural[index] = max(t.natural[index], width)
		}
	}
}

// widths returns the natural widths or, where the table would be too wide, cuts the
// widest of the columns that may be cut, one column of the terminal at a time: first
// down to their Fair.
func (t *Table) widths() []int {
	widths := append([]int(nil), t.natural...)
	total := len(gap) * (len(widths) - 1)
	for _, each := range widths {
		total += each
	}
	for ; t.Width > 0 && total > t.Width; total-- {
		widest := t.widest(widths, func(column Column) int { return max(column.Fair, column.Least) })
		if widest < 0 {
			widest = t.widest(widths, func(column Column) int { return column.Least })
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// widest returns the widest of the columns that are cut and wider than their bound; -1 if none is.
func (t *Table) widest(widths []int, bound func(Column) int) int {
	widest := -1
	for index, column := range t.Columns {
		if column.Least > 0 && widths[index] > bound(column) && (widest < 0 || widths[index] > widths[widest]) {
			widest = index
		}
	}
	return widest
}
