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
setsid sh -c 'sleep "$WORK" & sleep "$WORK"' &
(sleep "$WORK" &)
echo $PPID $$
sleep "$WORK"
exit 3`

// fault is what befalls a run.
type fault string

const (
	none              fault = "none"
	killFront         fault = "kill -9 of the front"
	killSupervisor    fault = "kill -9 of the supervisor"
	killCommand       fault = "kill -9 of the command"
	killFrontCommand  fault = "kill -9 of front and command"
	killBoth          fault = "kill -9 of front and supervisor"
	stopSupervisor    fault = "stop of the supervisor"
	signals           fault = "signals"
	stopThenKillFront fault = "stop of the supervisor, kill -9 of the front"
)

// draw returns a fault. Those after which the lock stays until its ttl are rarer.
func draw(random *rand.Rand) fault {
	faults := []fault{none, none, none, killFront, killFront, killCommand, killCommand, killFrontCommand, killFrontCommand, signals, stopThenKillFront}
	if random.IntN(12) == 0 {
		faults = []fault{killSupervisor, killBoth, killBoth, stopSupervisor}
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
	words := r.line()
	var pids [2]int
	for i := range pids {
		pids[i], _ = strconv.Atoi(words[i])
	}
	supervisor, command := pids[0], pids[1]
	front := r.front.Process.Pid
	switch with {
	case killFront:
		kill(t, front, syscall.SIGKILL)
	case killSupervisor:
		kill(t, supervisor, syscall.SIGKILL)
	case killCommand:
		kill(t, command, syscall.SIGKILL)
		stop := signalUntilEnd(r, syscall.SIGUSR1) // ends what it has left
		defer stop()
	case killFrontCommand:
		kill(t, command, syscall.SIGKILL)
		kill(t, front, syscall.SIGKILL)
	case killBoth:
		kill(t, supervisor, syscall.SIGSTOP) // so that it kills nothing itself
		kill(t, supervisor, syscall.SIGKILL)
		kill(t, front, syscall.SIGKILL)
	case stopSupervisor:
		kill(t, supervisor, syscall.SIGSTOP)
	case signals:
		stop := signalUntilEnd(r, syscall.SIGUSR2)
		defer stop()
	case stopThenKillFront:
		kill(t, supervisor, syscall.SIGSTOP)
		kill(t, front, syscall.SIGKILL)
	case none:
	}
	r.end()
}

// signalUntilEnd sends the signal again and again: descendants in other sessions get it when the command has ended.
func signalUntilEnd(r *started, with os.Signal) (stop func()) {
	ticker, stopped := time.NewTicker(20*time.Millisecond), make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			_ = r.front.Process.Signal(with)
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
