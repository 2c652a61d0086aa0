// Package top has the live view of locks: a model of all locks that a watch keeps up to
// date, and the lines of a screen that show the most interesting ones.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/terminal"
)

const (
	// rateWindow is how long back rates look.
	rateWindow = 10 * time.Second
	// soon is when a lock that is about to expire is marked.
	soon = 5 * time.Second
)

// The events that are counted, and their names.
const (
	acquired = iota
	handedOff
	renewed
	released
)

var eventNames = [...]string{"acquired", "handed off", "renewed", "released"}

// sample is what had been counted at a time.
type sample struct {
	at     time.Time
	counts [len(eventNames)]int
}

// Model keeps the locks. Its zero value is empty, and not loaded. It implements [locks.Follower]. Safe for concurrent use.
type Model struct {
	mu sync.Mutex
	// rows is nil until the locks are known, and waiting while the waiting Jobs are not known.
	rows    map[client.ObjectKey]*locks.Row
	waiting map[locks.ID][]locks.Job
	trouble string
	counts  [len(eventNames)]int
	samples []sample
}

// Listed implements [locks.Follower].
func (m *Model) Listed(all []*v1alpha1.Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = map[client.ObjectKey]*locks.Row{}
	for _, lock := range all {
		m.rows[client.ObjectKeyFromObject(lock)] = new(locks.RowOf(lock))
	}
}

// Changed implements [locks.Follower].
func (m *Model) Changed(lock *v1alpha1.Lock, isGone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, row := client.ObjectKeyFromObject(lock), new(locks.RowOf(lock))
	before := m.rows[name]
	m.rows[name] = row
	switch {
	case isGone:
		m.counts[released]++
		delete(m.rows, name)
	case before == nil:
		m.counts[acquired]++
	case before.Acquired.Equal(row.Acquired):
		m.counts[renewed]++
	case before.Expires.After(row.Acquired):
		// The release of one holder was the grant of the next.
		m.counts[handedOff]++
	default:
		m.counts[acquired]++
	}
}

// Failed implements [locks.Follower].
func (m *Model) Failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = ""
	if err != nil {
		m.trouble = err.Error()
	}
}

// SetWaiting replaces the waiting Jobs. Nil means that they are not known.
func (m *Model) SetWaiting(waiting map[locks.ID][]locks.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = waiting
}

// shown is a row on the screen.
type shown struct {
	locks.Row
	// holder is the holder's name, and whether it has started.
	holder  string
	waiters int
}

// held returns the rows of held locks, and the number of Jobs that wait for any lock. The caller has the mutex.
func (m *Model) held(now time.Time) (rows []shown, waiting int) {
	for _, each := range m.waiting {
		waiting += len(each)
	}
	for _, row := range m.rows {
		if row.IsHeld(now) {
			waiters := len(row.Waiting(m.waiting))
			waiting -= len(m.waiting[row.ID]) - waiters // its holder
			rows = append(rows, shown{*row, row.HolderState(m.waiting), waiters})
		}
	}
	return rows, waiting
}

// rates samples the counts, and writes how much they have grown per second of the window. Nothing is measured in the first
// second. The caller has the mutex.
func (m *Model) rates(now time.Time) string {
	m.samples = slices.DeleteFunc(m.samples, func(each sample) bool { return now.Sub(each.at) > rateWindow || each.at.After(now) })
	m.samples = append(m.samples, sample{now, m.counts})
	first := m.samples[0]
	window := now.Sub(first.at)
	rates := make([]string, 0, len(eventNames))
	for event, name := range eventNames {
		rate := human.Never
		if window >= time.Second {
			rate = strconv.FormatFloat(float64(m.counts[event]-first.counts[event])/window.Seconds(), 'f', 1, 64)
		}
		rates = append(rates, name+" "+rate)
	}
	return strings.Join(rates, "   ")
}

// orders are the orders of the rows, by name. Equal rows are ordered by namespace and key.
var orders = []struct {
	name    string
	compare func(a, b *shown) int
}{
	{"expires", func(a, b *shown) int { return a.Expires.Compare(b.Expires) }},
	{"waiters", func(a, b *shown) int { return cmp.Compare(b.waiters, a.waiters) }},
	{"held", func(a, b *shown) int { return a.Acquired.Compare(b.Acquired) }},
	{"key", func(*shown, *shown) int { return 0 }},
}

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
func (s *Screen) Frame(model *Model, times human.Times) (lines []string) {
	add := func(line string) {
		if s.Width > 0 {
			line = terminal.Cut(line, s.Width)
		}
		lines = append(lines, line)
	}
	model.mu.Lock()
	rows, waitingJobs := model.held(times.Now)
	rates, trouble := model.rates(times.Now), model.trouble
	isLoaded, knowsWaiting := model.rows != nil, model.waiting != nil
	model.mu.Unlock()
	add(fmt.Sprintf("kubectl lock top   %s   %s UTC", s.Where, times.Now.UTC().Format(time.TimeOnly)))
	if trouble != "" {
		add("! Out of date; trying again: " + terminal.Clean(trouble))
	}
	if !isLoaded {
		return append(lines, "Loading…")
	}
	waiting, order := human.Never, orders[s.Order%len(orders)]
	if knowsWaiting {
		waiting = strconv.Itoa(waitingJobs)
	}
	count := fmt.Sprintf("Locks %d   Jobs waiting %s", len(rows), waiting)
	if s.IsTerminal {
		add(count + fmt.Sprintf("   q quit   s sort (by %s)", order.name))
		add("Per second: " + rates)
	} else {
		add(count)
	}
	if len(rows) == 0 {
		return append(lines, "No locks are held.")
	}
	slices.SortFunc(rows, func(a, b shown) int {
		return cmp.Or(order.compare(&a, &b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(string(a.Key), string(b.Key)))
	})
	const above = 5
	if s.Height > 0 {
		rows = rows[:min(len(rows), max(s.Height-above, 1))]
	}
	return append(lines, s.table(rows, times)...)
}

func (s *Screen) table(rows []shown, times human.Times) []string {
	table := terminal.Table{Width: s.Width, Columns: []terminal.Column{
		{Header: "NAMESPACE", Least: 9, Fair: 12}, {Header: "KEY", Least: 12, Fair: 20}, {Header: "HOLDER", Least: 12, Fair: 14},
		{Header: "HELD"}, {Header: "EXPIRES"}, {Header: "WAITERS"}, {Header: "REASON", Least: 6},
	}}
	first := 0 // the column
	if !s.AllNamespaces {
		first = 1
	}
	table.Columns = table.Columns[first:]
	cells := make([][]string, 0, len(rows))
	for _, row := range rows {
		left := times.Left(row.Expires)
		if row.Expires.Sub(times.Now) < soon {
			left += " !"
		}
		cells = append(cells, []string{
			row.Namespace, row.Key.Bare(), row.holder, times.Since(row.Acquired), left, locks.Waiters(row.waiters, false), row.Reason,
		}[first:])
	}
	var text strings.Builder
	_ = table.Write(&text, cells)
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if s.HasColor {
		lines[0] = "\x1b[7m" + terminal.Pad(lines[0], s.Width) + "\x1b[0m"
		for index, row := range rows {
			if row.Expires.Sub(times.Now) < soon {
				lines[index+1] = "\x1b[33m" + lines[index+1] + "\x1b[0m"
			}
		}
	}
	return lines
}
