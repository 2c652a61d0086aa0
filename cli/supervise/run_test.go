//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func TestExitStatus(t *testing.T) {
	for status := range 256 {
		superviseScript(t, OnLostKill, "exit "+strconv.Itoa(status)).wantEnd(Outcome{Status: status})
	}
}

func TestCommandEndedByASignal(t *testing.T) {
	for number := 1; number <= 64; number++ {
		switch s := syscall.Signal(number); {
		case s == syscall.SIGCHLD || s == syscall.SIGCONT || s == syscall.SIGURG || s == syscall.SIGWINCH: // end no process
		case s == syscall.SIGSTOP || s == syscall.SIGTSTP || s == syscall.SIGTTIN || s == syscall.SIGTTOU: // stop it
		case number == 32 || number == 33: // the C library's own
		default:
			t.Run(strconv.Itoa(number), func(t *testing.T) {
				superviseScript(t, OnLostKill, fmt.Sprintf("ulimit -c 0; kill -%d $$", number)).wantEnd(Outcome{Status: 128 + number})
			})
		}
	}
}

func TestCommandThatCannotBeStarted(t *testing.T) {
	folder := t.TempDir()
	noProgram := folder + "/text"
	if err := os.WriteFile(noProgram, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy, err := NewPolicy(OnLostKill, testTTL, testGrace)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{folder + "/none": os.ErrNotExist, noProgram: os.ErrPermission} {
		clock := &testClock{}
		supervisor, err := Attach(clock)
		if err != nil {
			t.Fatal(err)
		}
		hold := &testHold{clock: clock, lost: make(chan struct{})}
		hold.prolong(testTTL)
		_, err = supervisor.Run(Command{Path: path, Args: []string{path}}, hold, policy, Events{})
		if _, isUnexecuted := errors.AsType[*exec.Error](err); !isUnexecuted || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
		_ = supervisor.Close()
	}
}

// stubborn scripts have processes that TERM does not end.
var stubborn = map[string]string{
	"the command ignores TERM":                     `trap "" TERM; echo ready; while :; do sleep 1000; done`,
	"a child ignores TERM":                         `(trap "" TERM; echo ready; while :; do sleep 1000; done) & wait`,
	"a grandchild ignores TERM":                    `( (trap "" TERM; echo ready; while :; do sleep 1000; done) & wait) & wait`,
	"an orphan ignores TERM":                       `( (trap "" TERM; echo ready; while :; do sleep 1000; done) & ); sleep 1000`,
	"a child in a session of its own ignores TERM": `setsid sh -c 'trap "" TERM; echo ready; while :; do sleep 1000; done' & wait`,
	"a daemon ignores TERM":                        `(setsid sh -c '(trap "" TERM; echo ready; while :; do sleep 1000; done) &'); sleep 1000`,
	"the command is stopped":                       `echo ready; kill -STOP $$`,
	"a child is stopped and ignores TERM":          `(trap "" TERM; echo ready; kill -STOP 0; sleep 1000) & wait`,
	"a child catches TERM and forks":               `trap 'while :; do sleep 1000 & sleep 1000; done' TERM; echo ready; while :; do sleep 1000; done`,
	"many children":                                `trap "" TERM; for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sleep 1000 &) ; done; echo ready; sleep 1000`,
}

func TestNothingOutlivesTheHold(t *testing.T) {
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			s := superviseScript(t, OnLostKill, script)
			s.wantLine("ready")
			s.clock.pass(testTTL - testMargin - testGrace)
			s.wantStage(StageTerm)
			s.clock.pass(testGrace)
			if outcome := <-s.result; !outcome.WasStopped || s.hold.Left() < testMargin {
				t.Errorf("outcome %+v, %s before the end of the hold", outcome, s.hold.Left())
			} else {
				s.result <- outcome
				s.wantEnd(outcome)
			}
		})
		t.Run(name+", and the lock is lost", func(t *testing.T) {
			s := superviseScript(t, OnLostKill, script)
			s.wantLine("ready")
			s.hold.lose()
			s.wantStage(StageKill)
			outcome := <-s.result
			s.result <- outcome
			s.wantEnd(Outcome{Status: outcome.Status, WasStopped: true})
		})
	}
}

func TestStop(t *testing.T) {
	const cleansUp = `trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.01; done`
	const obstinate = `trap "echo term" TERM; echo ready; while :; do sleep 0.01; done`
	t.Run("a command has the grace to clean up", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, cleansUp)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - testGrace)
		s.wantStage(StageTerm)
		s.wantLine("cleaned")
		s.wantEnd(Outcome{Status: 7, WasStopped: true})
	})
	t.Run("a renewed lock stops nothing", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, `echo ready; sleep 1000; exit 3`)
		s.wantLine("ready")
		for range 100 {
			s.clock.pass(testTTL / 3)
			s.hold.prolong(testTTL)
		}
		s.hold.lose()
		s.wantStage(StageKill)
		s.wantEnd(Outcome{Status: 128 + 9, WasStopped: true})
	})
	t.Run("a renewal after TERM does not put KILL off", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, obstinate)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - testGrace)
		s.wantStage(StageTerm)
		s.hold.prolong(testTTL)
		s.wantLine("term")
		s.clock.pass(testGrace)
		s.wantStage(StageKill)
		s.wantEnd(Outcome{Status: 128 + 9, WasStopped: true})
	})
	t.Run("after a suspension beyond the ttl there is no grace", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, cleansUp)
		s.wantLine("ready")
		s.clock.pass(time.Hour)
		s.wantStage(StageKill)
		s.wantEnd(Outcome{Status: 128 + 9, WasStopped: true})
	})
	t.Run("after a suspension up to the last seconds, the grace is what is left", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, obstinate)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - 2*time.Second)
		s.wantStage(StageTerm)
		s.wantLine("term")
		s.clock.pass(2 * time.Second)
		s.wantStage(StageKill)
		s.wantEnd(Outcome{Status: 128 + 9, WasStopped: true})
	})
	t.Run("a hold that has nearly ended starts no command", func(t *testing.T) {
		policy, _ := NewPolicy(OnLostKill, testTTL, testGrace)
		clock := &testClock{}
		supervisor, _ := Attach(clock)
		hold := &testHold{clock: clock, lost: make(chan struct{})}
		hold.prolong(testGrace)
		if _, err := supervisor.Run(Command{Path: "/nonexistent"}, hold, policy, Events{}); !errors.Is(err, ErrHoldEnded) {
			t.Errorf("got %v", err)
		}
		_ = supervisor.Close()
	})
	t.Run("what is forked while the others are killed is killed, too", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, `for i in 1 2; do setsid sh -c 'n=0; while [ $n -lt 500 ]; do sleep 1000 & n=$((n+1)); done; wait' & done; sleep 0.1; echo ready; wait`)
		s.wantLine("ready")
		s.hold.lose()
		s.wantStage(StageKill)
		s.wantEnd(Outcome{Status: 128 + 9, WasStopped: true})
	})
	t.Run("with term, TERM is all", func(t *testing.T) {
		s := superviseScript(t, OnLostTerm, `n=0; trap 'n=$((n+1)); echo term' TERM; echo ready; while [ $n = 0 ]; do sleep 0.01; done; exit 5`)
		s.wantLine("ready")
		s.hold.lose()
		s.wantStage(StageTerm)
		s.wantLine("term")
		s.wantEnd(Outcome{Status: 5, WasStopped: true})
	})
	t.Run("with ignore, nothing happens", func(t *testing.T) {
		fifo := t.TempDir() + "/fifo"
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		s := superviseScript(t, OnLostIgnore, `trap "echo term" TERM; echo ready; read x <`+fifo+`; exit 6`)
		s.wantLine("ready")
		s.hold.lose()
		s.clock.pass(time.Hour)
		if err := os.WriteFile(fifo, []byte("go\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.wantEnd(Outcome{Status: 6})
	})
}

// A process can be forked after the look at the tree, and then lose its parent to KILL. Here it is forked by this
// process, whose child such an orphan becomes.
func TestWhatIsForkedDuringTheKillIsKilled(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	clock := &testClock{now: time.Hour}
	supervisor, err := Attach(clock)
	if err != nil {
		t.Fatal(err)
	}
	defer supervisor.Close() //nolint:errcheck // there is no front
	// The command ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &run{Supervisor: supervisor, hold: &testHold{clock: clock}, policy: Policy{OnLost: OnLostKill}, tree: newTree(), timer: clock.NewTimer()}
	if err := r.start(Command{Path: sleep, Args: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	r.kill()
	late, err := syscall.ForkExec(sleep, []string{"sleep", "1000"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(patience, func() {
		t.Error("it was not killed")
		_ = syscall.Kill(late, syscall.SIGKILL)
	})
	defer giveUp.Stop()
	if got, want := r.loop(), (Outcome{Status: 128 + 9, WasStopped: true}); got != want {
		t.Errorf("outcome %+v, want %+v", got, want)
	}
}

func TestTheLockIsHeldUntilDescendantsHaveEnded(t *testing.T) {
	for name, script := range map[string]string{
		"background child": `(read x <FIFO; echo late) & echo ready; exit 4`,
		"orphan":           `( (read x <FIFO; echo late) & ); echo ready; exit 4`,
		"daemon":           `setsid sh -c '(read x <FIFO; echo late) &'; echo ready; exit 4`,
	} {
		t.Run(name, func(t *testing.T) {
			fifo := t.TempDir() + "/fifo"
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			s := superviseScript(t, OnLostKill, "FIFO="+fifo+"; export FIFO\n"+replaceFIFO(script, fifo))
			s.wantLine("ready")
			writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the process is there
			if err != nil {
				t.Fatal(err)
			}
			select {
			case outcome := <-s.result:
				t.Errorf("the run has ended with %+v, and a process of it is left", outcome)
				s.result <- outcome
			case <-s.leftover:
			case <-time.After(patience):
				t.Error("the end of the command was not noticed")
			}
			if _, err := writer.WriteString("go\n"); err != nil {
				t.Error(err)
			}
			_ = writer.Close()
			s.wantLine("late")
			s.wantEnd(Outcome{Status: 4})
		})
	}
}
