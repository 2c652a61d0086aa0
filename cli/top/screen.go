package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/terminal"
)

// soon is when a lock that is about to expire is marked.
const soon = 5 * time.Second

// Screen is what a frame is made for.
type Screen struct {
	terminal.Terminal
	// Where says whose locks they are, such as "namespace payments".
	Where string
	// AllNamespaces adds a column.
	AllNamespaces bool
	// Order counts how often the user has asked for another order.
	Order int
}

// Frame returns the lines that show a model; at most as many as the terminal has.
func (s *Screen) Frame(model *Model, times human.Times) []string {
	const above = 5
	most := 1 << 20
	if s.Height > 0 {
		most = max(s.Height-above, 1)
	}
	seen := model.view(times.Now, s.Order, most)
	title := fmt.Sprintf("kubectl lock top   %s   %s UTC", s.Where, times.Now.UTC().Format(time.TimeOnly))
	lines := []string{s.fit(title)}
	if seen.trouble != "" {
		lines = append(lines, s.fit("! Out of date; trying again: "+terminal.Clean(seen.trouble)))
	}
	if !seen.isLoaded {
		return append(lines, "Loading…")
	}
	waiting := human.Never
	if seen.knowsWaiting {
		waiting = strconv.Itoa(seen.waitingJobs)
	}
	count := fmt.Sprintf("Locks %d   Jobs waiting %s", seen.held, waiting)
	if s.IsTerminal {
		count += fmt.Sprintf("   q quit   s sort (by %s)", orders[s.Order%len(orders)].name)
	}
	lines = append(lines, s.fit(count))
	if s.IsTerminal {
		lines = append(lines, s.fit(fmt.Sprintf("Per second: acquired %s   handed off %s   renewed %s   released %s",
			rate(seen.counts.Acquired, seen.window), rate(seen.counts.HandedOff, seen.window), rate(seen.counts.Renewed, seen.window), rate(seen.counts.Released, seen.window))))
	}
	if seen.held == 0 {
		return append(lines, "No locks are held.")
	}
	return append(lines, s.table(&seen, times)...)
}

// rate is what people read at a glance: nothing is measured in the first second.
func rate(count int, window time.Duration) string {
	if window < time.Second {
		return human.Never
	}
	return strconv.FormatFloat(float64(count)/window.Seconds(), 'f', 1, 64)
}

func (s *Screen) table(seen *view, times human.Times) []string {
	table := terminal.Table{Width: s.Width, Columns: []terminal.Column{
		{Header: "KEY", Least: 12, Fair: 20}, {Header: "HOLDER", Least: 12, Fair: 14}, {Header: "HELD"}, {Header: "EXPIRES"}, {Header: "WAITERS"}, {Header: "REASON", Least: 6},
	}}
	if s.AllNamespaces {
		table.Columns = append([]terminal.Column{{Header: "NAMESPACE", Least: 9, Fair: 12}}, table.Columns...)
	}
	cells := make([][]string, 0, len(seen.rows))
	for _, row := range seen.rows {
		left := times.Left(row.Expires)
		if row.Expires.Sub(times.Now) < soon {
			left += " !"
		}
		line := []string{row.Key.Bare(), row.holder, times.Since(row.Acquired), left, locks.Waiters(row.waiters, false), row.Reason}
		if s.AllNamespaces {
			line = append([]string{row.Namespace}, line...)
		}
		cells = append(cells, line)
	}
	var text strings.Builder
	_ = table.Write(&text, cells)
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if s.HasColor {
		lines[0] = "\x1b[7m" + terminal.Pad(lines[0], s.Width) + "\x1b[0m"
		for index, row := range seen.rows {
			if row.Expires.Sub(times.Now) < soon {
				lines[index+1] = "\x1b[33m" + lines[index+1] + "\x1b[0m"
			}
		}
	}
	return lines
}

func (s *Screen) fit(line string) string {
	if s.Width == 0 {
		return line
	}
	return terminal.Cut(line, s.Width)
}
