// Package top has the live view of locks: a model of all locks that a watch keeps up to
// date, and the lines of a screen that show the most interesting ones.
package top

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
)

// rateWindow is how long back rates look.
const rateWindow = 10 * time.Second

// Counts are how often things have happened.
type Counts struct {
	Acquired, HandedOff, Renewed, Released int
}

// sample is what had been counted at a time.
type sample struct {
	at time.Time
	Counts
}

// Model keeps the locks. It implements [locks.Follower]. Safe for concurrent use.
type Model struct {
	mu sync.Mutex
	// isLoaded says that the locks are known, as far as they are without a watch.
	isLoaded bool
	trouble  string
	rows     map[client.ObjectKey]*locks.Row
	waiting  map[locks.ID][]locks.Job
	counts   Counts
	samples  []sample
}

// NewModel returns a model that is not loaded.
func NewModel() *Model { return new(Model) }

// Listed implements [locks.Follower].
func (m *Model) Listed(all []*v1alpha1.Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows, m.isLoaded = map[client.ObjectKey]*locks.Row{}, true
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
	switch {
	case isGone:
		m.counts.Released++
		delete(m.rows, name)
		return
	case before == nil:
		m.counts.Acquired++
	case before.Acquired.Equal(row.Acquired):
		m.counts.Renewed++
	case before.Expires.After(row.Acquired):
		// The release of one holder was the grant of the next.
		m.counts.HandedOff++
	default:
		m.counts.Acquired++
	}
	m.rows[name] = row
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

// view is what a screen shows.
type view struct {
	isLoaded     bool
	trouble      string
	rows         []shown
	held         int
	knowsWaiting bool
	waitingJobs  int
	// counts are what has happened within the window.
	counts Counts
	window time.Duration
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

// view returns the first rows of an order, and counts.
func (m *Model) view(now time.Time, order, most int) view {
	m.mu.Lock()
	seen := view{isLoaded: m.isLoaded, trouble: m.trouble, knowsWaiting: m.waiting != nil}
	seen.counts, seen.window = m.since(now)
	for _, each := range m.waiting {
		seen.waitingJobs += len(each)
	}
	for _, row := range m.rows {
		if row.IsHeld(now) {
			waiters := len(row.Waiting(m.waiting))
			seen.waitingJobs -= len(m.waiting[row.ID]) - waiters // its holder
			seen.rows = append(seen.rows, shown{*row, row.HolderState(m.waiting), waiters})
		}
	}
	m.mu.Unlock()
	seen.held = len(seen.rows)
	compare := orders[order%len(orders)].compare
	slices.SortFunc(seen.rows, func(a, b shown) int {
		return cmp.Or(compare(&a, &b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(string(a.Key), string(b.Key)))
	})
	seen.rows = seen.rows[:min(len(seen.rows), most)]
	return seen
}

// since samples the counts and returns how much they have grown within the window. The
// caller has the mutex.
func (m *Model) since(now time.Time) (Counts, time.Duration) {
	m.samples = slices.DeleteFunc(m.samples, func(each sample) bool { return now.Sub(each.at) > rateWindow || each.at.After(now) })
	m.samples = append(m.samples, sample{now, m.counts})
	first := m.samples[0]
	return Counts{
		Acquired: m.counts.Acquired - first.Acquired, HandedOff: m.counts.HandedOff - first.HandedOff,
		Renewed: m.counts.Renewed - first.Renewed, Released: m.counts.Released - first.Released,
	}, now.Sub(first.at)
}
