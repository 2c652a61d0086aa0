//go:build timing

package scale_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	manyLocks = 10_000
	// longest is how long list and who may take with all of them.
	longest = 1500 * time.Millisecond
	// tries is how often they are run: the shortest counts.
	tries = 5
	// mostCores and mostMemory are what list -w and top may use, and window is how long they are watched.
	mostCores  = 1.0
	mostMemory = 200 << 20
	window     = 15 * time.Second
)

func TestTimingTenThousandLocks(t *testing.T) {
	b := newBench(t, manyLocks)
	t.Run("list", func(t *testing.T) { b.wantList(t, b.fastest(t, "list", "-A")) })
	t.Run("who", func(t *testing.T) { wantWho(t, b.fastest(t, "who", keyOf(0), "-n", namespaces[0])) })
	t.Run("list -w", func(t *testing.T) { b.use(t, "held ", "list", "-A", "-w") })
	t.Run("top", func(t *testing.T) { b.use(t, "Locks "+strconv.Itoa(manyLocks), "top", "-A") })
}

// fastest checks the shortest time of some runs of a command, and returns what it prints.
func (b *bench) fastest(t *testing.T, arguments ...string) (printed string) {
	t.Helper()
	var took time.Duration
	for try := range tries {
		began := time.Now()
		printed = b.run(t, arguments...)
		if this := time.Since(began); try == 0 || this < took {
			took = this
		}
	}
	t.Logf("%v: %s", arguments, took.Round(time.Millisecond))
	if took > longest {
		t.Errorf("it took %s, and may take %s", took, longest)
	}
	return printed
}

// use checks what a command uses while all locks change.
func (b *bench) use(t *testing.T, want string, arguments ...string) {
	t.Helper()
	ran := b.watch(t, window, want, arguments...)
	usage, ok := ran.state.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("no usage is known")
	}
	cores := (ran.state.UserTime() + ran.state.SystemTime()).Seconds() / ran.took.Seconds()
	memory := usage.Maxrss << 10
	t.Logf("%v with %.0f renewals per second: %.2f cores, %d MiB", arguments, float64(ran.renewed)/ran.took.Seconds(), cores, memory>>20)
	if cores >= mostCores || memory > mostMemory {
		t.Errorf("%.2f cores and %d MiB are too much", cores, memory>>20)
	}
	if ran.renewed == 0 {
		t.Error("nothing was renewed")
	}
}
