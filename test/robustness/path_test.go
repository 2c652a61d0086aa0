package robustness_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"forrst.dev/lock-operator/lock/audit"
)

const (
	// promptProbe is how long the create and the delete of a probe may take together for
	// requests to count as getting through. Taking a lock takes one or two requests.
	promptProbe = time.Second
	// nextProbe is how long after a probe the next one must be sent. Otherwise the replica
	// did not run in between.
	nextProbe = time.Second
	// promptShow is how long after the answer to a create the informer of the same replica
	// must have shown the object for its watch to count as working.
	promptShow = 100 * time.Millisecond
)

// path is what is known about the way from one replica to etcd. The replica reports its
// probes, and the proxy what it did to requests. Safe for concurrent use.
type path struct {
	mu     sync.Mutex
	probes []probe
	// breaks are the times in which a request was disturbed.
	breaks []broken
	// kills are the times in which there was no process.
	kills  []broken
	states []state
	// lost are the deletes that the watch did not show.
	lost []lostDelete
	// audited are the records of the audit.
	audited []audit.Record
}

// probe is a Lock that the replica created and deleted.
type probe struct {
	sent, created, done, shown time.Time
	succeeded                  bool
}

// broken is a time in which a request did not get through, or not undisturbed.
type broken struct{ from, to time.Time }

// state is what a replica reports of itself.
type state struct {
	figures

	at       time.Time
	isLeader bool
}

// note reads a line that the replica wrote.
func (p *path) note(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, values, _ := strings.Cut(line, " ")
	var sent, created, done, shown int64
	switch kind {
	case "probe":
		var made probe
		if _, err := fmt.Sscan(values, &sent, &created, &done, &made.succeeded); err != nil {
			return err
		}
		made.sent, made.created, made.done = time.Unix(0, sent), time.Unix(0, created), time.Unix(0, done)
		if index := p.indexOf(made.sent); index >= 0 {
			made.shown = p.probes[index].shown
			p.probes[index] = made
		} else {
			p.probes = append(p.probes, made)
		}
	case "shown":
		if _, err := fmt.Sscan(values, &sent, &shown); err != nil {
			return err
		}
		at := time.Unix(0, sent)
		index := p.indexOf(at)
		if index < 0 { // Its own report comes after the delete.
			p.probes = append(p.probes, probe{sent: at})
			index = len(p.probes) - 1
		}
		p.probes[index].shown = time.Unix(0, shown)
	case "audit":
		var record audit.Record
		if err := json.Unmarshal([]byte(values), &record); err != nil {
			return err
		}
		p.audited = append(p.audited, record)
	case "state":
		var at int64
		var now state
		if _, err := fmt.Sscan(values, &at, &now.Goroutines, &now.HeapBytes, &now.Files, &now.isLeader); err != nil {
			return err
		}
		now.at = time.Unix(0, at)
		p.states = append(p.states, now)
	default:
		return fmt.Errorf("a replica reports %q", line)
	}
	return nil
}

// indexOf returns the index of the probe, or -1. Few were sent after it.
func (p *path) indexOf(sent time.Time) int {
	for index := len(p.probes) - 1; index >= 0 && index >= len(p.probes)-2000; index-- {
		if p.probes[index].sent.Equal(sent) {
			return index
		}
	}
	return -1
}

// broke records that a request did not get through undisturbed in that time.
func (p *path) broke(from, to time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks = append(p.breaks, broken{from, to})
}

// died records that there was no process in that time.
func (p *path) died(from, to time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kills = append(p.kills, broken{from, to})
}

// lostDelete is a delete that the watch did not show.
type lostDelete struct {
	name string
	at   time.Time
}

// lose records that the watch does not show the delete of the lock.
func (p *path) lose(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = append(p.lost, lostDelete{name, time.Now()})
}

// reset forgets everything, for the next part of a run.
func (p *path) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes, p.breaks, p.kills, p.states, p.lost, p.audited = nil, nil, nil, nil, nil, nil
}

// leads reports whether the replica led when it last said so.
func (p *path) leads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.states) > 0 && p.states[len(p.states)-1].isLeader
}

// figures returns the largest figures at any time, and the last ones, which are those at
// rest if the clients have stopped.
func (p *path) figures() (most, last figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, state := range p.states {
		last = state.figures
		most = most.most(last)
	}
	return most, last
}

// records returns the records of the audit.
func (p *path) records() []audit.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.audited)
}

// rests reports whether the replica has reported since then, and was within the bounds.
func (p *path) rests(since time.Time, most figures) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.states) == 0 {
		return false
	}
	last := p.states[len(p.states)-1]
	return last.at.After(since) && last.figures.most(most) == most
}

// passage is when requests of a replica got through, in times since the start of a run.
type passage struct {
	// open: each probe succeeded promptly, and no request was disturbed. A span begins and
	// ends with a probe.
	open []span
	// watching: besides, the watch showed each probe promptly.
	watching []span
	// dead: there was no process.
	dead []span
	// lost is when the watch did not show the delete of a lock, by the lock's name.
	lost map[string][]time.Duration
	// shows are the times from the sending of a probe until the watch showed it. They tell
	// how busy the machine is.
	shows []span
}

// passage returns what the facts say.
func (p *path) passage(start time.Time) passage {
	p.mu.Lock()
	defer p.mu.Unlock()
	probes := slices.SortedFunc(slices.Values(p.probes), func(a, b probe) int { return a.sent.Compare(b.sent) })
	spanOf := func(each broken) span { return span{each.from.Sub(start), each.to.Sub(start)} }
	var breaks, dead []span
	for _, each := range p.breaks {
		breaks = append(breaks, spanOf(each))
	}
	for _, each := range p.kills {
		dead = append(dead, spanOf(each))
	}
	dead = union(dead)
	breaks = union(append(breaks, dead...))
	result := passage{dead: dead, lost: map[string][]time.Duration{}}
	for _, each := range p.lost {
		result.lost[each.name] = append(result.lost[each.name], each.at.Sub(start))
	}
	result.open = subtract(runs(probes, start, probe.isPrompt), breaks)
	result.watching = subtract(runs(probes, start, func(each probe) bool { return each.isPrompt() && each.isShown() }), breaks)
	for _, each := range probes {
		if each.succeeded && !each.shown.IsZero() {
			result.shows = append(result.shows, spanOf(broken{each.sent, each.shown}))
		}
	}
	return result
}

// runs returns the times of unbroken series of probes that pass.
func runs(probes []probe, start time.Time, passes func(probe) bool) (found []span) {
	var current []probe
	end := func() {
		if len(current) > 0 {
			found = append(found, span{current[0].sent.Sub(start), current[len(current)-1].done.Sub(start)})
		}
		current = nil
	}
	for _, each := range probes {
		if len(current) > 0 && each.sent.Sub(current[len(current)-1].done) > nextProbe {
			end()
		}
		if !passes(each) {
			end()
			continue
		}
		current = append(current, each)
	}
	end()
	return found
}

func (p probe) isPrompt() bool { return p.succeeded && p.done.Sub(p.sent) <= promptProbe }

func (p probe) isShown() bool { return !p.shown.IsZero() && p.shown.Sub(p.created) <= promptShow }

// quantile returns the value below which the share of the sorted values lies, or zero
// without values.
func quantile[T cmp.Ordered](sorted []T, share float64) (value T) {
	if len(sorted) == 0 {
		return value
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
