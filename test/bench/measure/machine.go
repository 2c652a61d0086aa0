package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// What a round may suffer before it counts as disturbed.
const (
	// mostForeign is the part of all processors that processes of others may use. /proc counts in ticks of 10 ms, so
	// it is uncertain by some percent in a round of a second.
	mostForeign = 0.10
	// mostSteal is the part that the hypervisor may take.
	mostSteal = 0.02
	// mostSlowdown is how much longer the calibration may take than at the start of the run.
	mostSlowdown = 1.15
)

// Machine tells whether something else used the machine during a measurement. One goroutine uses it.
type Machine struct {
	// root is the folder /proc.
	root string
	// calibrate returns how long a fixed piece of work takes.
	calibrate func() time.Duration
	// baseline is how long it took at the start.
	baseline time.Duration
}

// NewMachine calibrates the machine.
func NewMachine() (*Machine, error) {
	m := &Machine{root: "/proc", calibrate: calibration}
	if _, err := m.read(); err != nil {
		return nil, fmt.Errorf("read how busy the machine is: %w", err)
	}
	m.baseline = m.calibrate()
	for range 20 {
		m.baseline = min(m.baseline, m.calibrate())
	}
	return m, nil
}

// Window is what else happened on the machine during a measurement.
type Window struct {
	// Foreign is the part of all processors that processes of others used, Steal the part that the hypervisor took.
	Foreign, Steal float64
	// Slowdown is how many times as long as at the start of the run the calibration took, before or after.
	Slowdown float64
}

// Disturbance says what makes measurements of the window unfit for a verdict. Empty if they are fit.
func (w Window) Disturbance() string {
	switch {
	case w.Foreign > mostForeign:
		return fmt.Sprintf("other processes used %.0f %% of the processors", 100*w.Foreign)
	case w.Steal > mostSteal:
		return fmt.Sprintf("the hypervisor took %.0f %% of the processors", 100*w.Steal)
	case w.Slowdown > mostSlowdown:
		return fmt.Sprintf("the calibration took %.2f times as long as at the start", w.Slowdown)
	}
	return ""
}

// Worst returns the window with the worse of both in everything.
func (w Window) Worst(other Window) Window {
	return Window{max(w.Foreign, other.Foreign), max(w.Steal, other.Steal), max(w.Slowdown, other.Slowdown)}
}

// Watch begins a window. The function ends it.
func (m *Machine) Watch() (func() (Window, error), error) { return m.watch(true) }

// WatchLoaded begins a window in which the measured programs are busy all the time, so a calibration would measure them.
func (m *Machine) WatchLoaded() (func() (Window, error), error) { return m.watch(false) }

func (m *Machine) watch(calibrates bool) (func() (Window, error), error) {
	before := m.baseline
	if calibrates {
		before = m.calibrate()
	}
	start, err := m.read()
	if err != nil {
		return nil, err
	}
	return func() (Window, error) {
		end, err := m.read()
		if err != nil {
			return Window{}, err
		}
		window := end.since(start)
		after := m.baseline
		if calibrates {
			after = m.calibrate()
		}
		window.Slowdown = float64(max(before, after)) / float64(m.baseline)
		return window, nil
	}, nil
}

// ticks are times of all processors together.
type ticks struct{ capacity, busy, steal, own float64 }

func (t ticks) since(start ticks) Window {
	capacity := max(1, t.capacity-start.capacity)
	return Window{
		Foreign: max(0, (t.busy-start.busy)-(t.own-start.own)) / capacity,
		Steal:   (t.steal - start.steal) / capacity,
	}
}

func (m *Machine) read() (ticks, error) {
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
	const user, nice, system, steal = 1, 2, 3, 8
	fields := strings.Fields(line)
	if len(fields) <= steal {
		return ticks{}, errors.New("/proc/stat has too few fields")
	}
	// Those that follow are contained in the first two.
	for position, field := range fields[:steal+1] {
		if position == 0 {
			continue
		}
		value, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return ticks{}, err
		}
		result.capacity += value
		switch position {
		case user, nice, system:
			result.busy += value
		case steal:
			result.steal = value
		}
	}
	return result, nil
}

// ownTicks returns the times of this process and of its descendants, with those that have ended.
func (m *Machine) ownTicks() (float64, error) {
	paths, err := filepath.Glob(filepath.Join(m.root, "[0-9]*", "stat"))
	if err != nil {
		return 0, err
	}
	parents, spent := map[int]int{}, map[int]float64{}
	for _, path := range paths {
		content, _ := os.ReadFile(path) // an ended process has none
		// The name of the program, in parentheses, may contain any character.
		end := bytes.LastIndexByte(content, ')')
		fields := strings.Fields(string(content[end+1:]))
		const parent, firstTime, lastTime = 1, 11, 14
		if len(fields) <= lastTime {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return 0, err
		}
		if parents[pid], err = strconv.Atoi(fields[parent]); err != nil {
			return 0, err
		}
		for _, field := range fields[firstTime : lastTime+1] {
			value, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, err
			}
			spent[pid] += value
		}
	}
	var own float64
	for pid, time := range spent {
		if descends(pid, os.Getpid(), parents) {
			own += time
		}
	}
	return own, nil
}

// descends reports whether a process is the ancestor or descends from it.
func descends(pid, ancestor int, parents map[int]int) bool {
	for range len(parents) + 1 {
		if pid == ancestor {
			return true
		}
		next, ok := parents[pid]
		if !ok {
			return false
		}
		pid = next
	}
	return false // a number was used again while /proc was read
}

// calibration returns the shortest of a few runs of a fixed piece of work, so work of the measured programs that goes
// on for a moment does not count.
func calibration() time.Duration {
	const runs, steps = 5, 2_000_000
	shortest := time.Duration(1<<63 - 1)
	for range runs {
		started := time.Now()
		state := uint64(1)
		for range steps {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
		}
		runtime.KeepAlive(state)
		shortest = min(shortest, time.Since(started))
	}
	return shortest
}
