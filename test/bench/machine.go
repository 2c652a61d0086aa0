package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What a round may suffer before it counts as disturbed.
const (
	// mostForeign is the part of all processors that processes of others may use. /proc counts in ticks of 10 ms, so it is
	// uncertain by some percent in a round of a second.
	mostForeign = 0.10
	// mostSteal is the part that a hypervisor may take.
	mostSteal = 0.02
)

// machine tells whether something else used the machine during a measurement. One goroutine uses it.
type machine struct {
	// root is the folder /proc.
	root string
	// windows and disturbed count what was measured, and example says how one of the disturbed ones was.
	windows, disturbed int
	example            string
}

// during measures, and says what makes that unfit for a verdict. Empty if it is fit.
func (m *machine) during(measure func()) (disturbance string) {
	start := must(m.read())
	measure()
	end := must(m.read())
	capacity := max(1, end.capacity-start.capacity)
	foreign := ((end.busy - start.busy) - (end.own - start.own)) / capacity
	steal := (end.steal - start.steal) / capacity
	switch {
	case foreign > mostForeign:
		disturbance = fmt.Sprintf("other processes used %.0f %% of the processors", 100*foreign)
	case steal > mostSteal:
		disturbance = fmt.Sprintf("a hypervisor took %.0f %% of the processors", 100*steal)
	}
	m.windows++
	if disturbance != "" {
		m.disturbed++
		m.example = disturbance
	}
	return disturbance
}

// String says how quiet the machine was so far.
func (m *machine) String() string {
	if m.disturbed == 0 {
		return "No round was disturbed."
	}
	return fmt.Sprintf("%d of %d rounds were disturbed, for example because %s.", m.disturbed, m.windows, m.example)
}

// ticks are times of all processors together; own is that of this process and its descendants.
type ticks struct{ capacity, busy, steal, own float64 }

func (m *machine) read() (ticks, error) {
	var result ticks
	var err error
	if result.own, err = m.ownTicks(); err != nil {
		return ticks{}, err
	}
	content, err := os.ReadFile(filepath.Join(m.root, "stat"))
	if err != nil {
		return ticks{}, err
	}
	line, _, _ := strings.Cut(string(content), "\n")
	fields, err := numbers(line, 1, 8)
	if err != nil {
		return ticks{}, fmt.Errorf("%s/stat: %w", m.root, err)
	}
	for _, field := range fields {
		result.capacity += field
	}
	const user, nice, system, steal = 0, 1, 2, 7
	result.busy, result.steal = fields[user]+fields[nice]+fields[system], fields[steal]
	return result, nil
}

// ownTicks returns the times of this process and of its descendants, with those that have ended.
func (m *machine) ownTicks() (float64, error) {
	paths, err := filepath.Glob(filepath.Join(m.root, "[0-9]*", "stat"))
	if err != nil {
		return 0, err
	}
	parents, spent := map[int]int{}, map[int]float64{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return 0, err
		}
		// The name of the program, in parentheses, may contain any character. Its state and its parent follow.
		const parent, times, all = 0, 10, 14
		fields, err := numbers(string(content[bytes.LastIndexByte(content, ')')+1:]), 1, all)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		parents[pid] = int(fields[parent])
		for _, field := range fields[times:] {
			spent[pid] += field
		}
	}
	var own float64
	for pid, time := range spent {
		// A number may have been used again while /proc was read, so there may be a circle.
		ancestor := pid
		for range parents {
			if ancestor == os.Getpid() {
				own += time
				break
			}
			ancestor = parents[ancestor]
		}
	}
	return own, nil
}

// numbers returns so many fields of a line after those that are left out.
func numbers(line string, leftOut, count int) ([]float64, error) {
	fields := strings.Fields(line)
	if len(fields) < leftOut+count {
		return nil, fmt.Errorf("%d fields, want %d", len(fields), leftOut+count)
	}
	values := make([]float64, count)
	for i := range values {
		var err error
		if values[i], err = strconv.ParseFloat(fields[leftOut+i], 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}
