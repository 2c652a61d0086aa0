//go:build linux

package run_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runsVariable is how many runs TestWitness makes, with the shortest ttl.
const runsVariable = "RUN_WITNESS_RUNS"

// witness is what each holder does. The descriptor 9 is open in each of its processes, so the kernel keeps the
// file locked for as long as one of them lives: if it is locked already, a process of another holder lives.
// Then it writes its fencing token, and starts processes that TERM does not end.
const witness = `trap "" TERM HUP
exec 9>>"$WITNESS.lock"
flock -n 9 || echo overlap "$FORRST_LOCK_FENCING_TOKEN" >>"$WITNESS"
echo "$FORRST_LOCK_FENCING_TOKEN" >>"$WITNESS"
(sleep "$WORK"; sleep "$WORK") &
(sleep "$WORK" &)
echo $$
sleep "$WORK"
exit 3`

// fault is what befalls a run.
type fault string

const (
	none            fault = "none"
	killRun         fault = "kill -9 of run"
	killWatcher     fault = "kill -9 of the watcher"
	killCommand     fault = "kill -9 of the command"
	killRunCommand  fault = "kill -9 of run and command"
	stopRun         fault = "stop of run"
	signals         fault = "signals"
	stopThenKillRun fault = "stop of run, then kill -9"
)

// draw returns a fault. Those after which the lock stays until its ttl are rarer.
func draw(random *rand.Rand) fault {
	faults := []fault{none, none, killWatcher, killCommand, signals}
	if random.IntN(6) == 0 {
		faults = []fault{killRun, killRunCommand, stopRun, stopThenKillRun}
	}
	return faults[random.IntN(len(faults))]
}

const (
	// fewRuns have a ttl whose margins hold on a busy machine.
	fewRuns, longTTL = 24, 10 * time.Second
	// shortTTL is the shortest that there is.
	shortTTL = 2 * time.Second
)

func TestWitness(t *testing.T) {
	runs, ttl := fewRuns, longTTL
	if text := os.Getenv(runsVariable); text != "" {
		ttl = shortTTL
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	service := newService(t)
	file := filepath.Join(t.TempDir(), "witness")
	t.Setenv("WITNESS", file)
	began := time.Now()
	var mu sync.Mutex
	befell := map[fault]int{}
	var contenders sync.WaitGroup
	for contender := range 2 {
		contenders.Go(func() {
			random := rand.New(rand.NewPCG(uint64(contender), 1))
			for range runs / 2 {
				with := draw(random)
				contend(t, service, ttl, with, random)
				mu.Lock()
				befell[with]++
				mu.Unlock()
			}
		})
	}
	contenders.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if overlaps := strings.Count(string(text), "overlap"); overlaps > 0 {
		t.Errorf("%d times, a command has run beside another holder's", overlaps)
	}
	tokens := strings.Fields(string(text))
	if len(tokens) != runs/2*2 {
		t.Errorf("%d holders have run, want %d", len(tokens), runs)
	}
	var last int64
	for _, field := range tokens {
		token, err := strconv.ParseInt(field, 10, 64)
		if err != nil || token <= last {
			t.Fatalf("fencing token %s after %d, %v", field, last, err)
		}
		last = token
	}
	t.Logf("%d runs in %s: %v", len(tokens), time.Since(began).Round(time.Second), befell)
}

// contend makes one run, and has the fault befall it.
func contend(t *testing.T, service *service, ttl time.Duration, with fault, random *rand.Rand) {
	t.Helper()
	work := time.Duration(random.IntN(100)) * time.Millisecond
	if with != none {
		work = 10 * time.Minute // until it is killed
	} else if random.IntN(20) == 0 {
		work = ttl + ttl/4
	}
	r := service.start(t, key, "--ttl", ttl.String(), "--", "env", fmt.Sprintf("WORK=%.3f", work.Seconds()), "sh", "-c", witness)
	command, program := r.pids()[0], r.program.Process.Pid
	switch with {
	case killRun:
		kill(t, program, syscall.SIGKILL)
	case killWatcher:
		kill(t, r.watcher(), syscall.SIGKILL)
	case killCommand:
		kill(t, command, syscall.SIGKILL)
	case killRunCommand:
		kill(t, command, syscall.SIGKILL)
		kill(t, program, syscall.SIGKILL)
	case stopRun:
		kill(t, program, syscall.SIGSTOP)
		<-time.After(ttl + ttl/4) // Another holder runs by then.
		kill(t, program, syscall.SIGCONT)
	case signals:
		stop := signalUntilEnd(r, syscall.SIGUSR2)
		defer stop()
	case stopThenKillRun:
		kill(t, program, syscall.SIGSTOP)
		kill(t, program, syscall.SIGKILL)
	case none:
	}
	r.end()
}

// signalUntilEnd sends the signal again and again.
func signalUntilEnd(r *started, with os.Signal) (stop func()) {
	ticker, stopped := time.NewTicker(20*time.Millisecond), make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			_ = r.program.Process.Signal(with)
			select {
			case <-stopped:
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		ticker.Stop()
		close(stopped)
		sender.Wait()
	}
}
