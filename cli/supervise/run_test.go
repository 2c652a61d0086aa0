//go:build linux

package supervise

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheStatusIsThatOfTheCommand(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 126": 126, "exit 127": 127, "exit 128": 128, "exit 200": 200, "exit 255": 255,
		"kill -1 $$": 129, "kill -2 $$": 130, "kill -9 $$": 137, "kill -15 $$": 143, "kill -64 $$": 192, "ulimit -c 0; kill -11 $$": 139,
	} {
		t.Run(script, func(t *testing.T) { superviseScript(t, OnLostKill, script).wantEnd(Outcome{Status: want}) })
	}
}

func TestACommandThatCannotBeStarted(t *testing.T) {
	folder := t.TempDir()
	noProgram := folder + "/text"
	if err := os.WriteFile(noProgram, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy, err := NewPolicy(OnLostKill, testTTL, testGrace)
	if err != nil {
		t.Fatal(err)
	}
	clock := newTestClock()
	supervisor := newTestSupervisor(clock)
	defer supervisor.Close()
	hold := newTestHold(clock)
	for path, want := range map[string]error{folder + "/none": os.ErrNotExist, noProgram: os.ErrPermission} {
		_, err := supervisor.Run(Command{Path: path, Args: []string{path}}, hold, policy, nil)
		if _, isUnexecuted := errors.AsType[*exec.Error](err); !isUnexecuted || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	hold.prolong(testGrace)
	if _, err := supervisor.Run(Command{Path: noProgram}, hold, policy, nil); !errors.Is(err, ErrHoldEnded) {
		t.Errorf("without time: got %v", err)
	}
}

// stubborn scripts have processes that TERM does not end.
var stubborn = map[string]string{
	"the command ignores TERM":            `trap "" TERM; echo ready; while :; do sleep 1000; done`,
	"a child ignores TERM":                `(trap "" TERM; echo ready; while :; do sleep 1000; done) & wait`,
	"an orphan ignores TERM":              `( (trap "" TERM; echo ready; while :; do sleep 1000; done) & ); sleep 1000`,
	"the command is stopped":              `trap "" TERM; echo ready; kill -STOP $$; sleep 1000`,
	"a child is stopped and ignores TERM": `(trap "" TERM; echo ready; kill -STOP 0; sleep 1000) & wait`,
	"a child catches TERM and forks":      `trap 'while :; do sleep 1000 & sleep 1000; done' TERM; echo ready; while :; do sleep 1000; done`,
	"many orphans":                        `trap "" TERM; for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 1000 &) ; done; echo ready; sleep 1000`,
}

func TestNothingOfTheGroupOutlivesTheHold(t *testing.T) {
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			s := superviseScript(t, OnLostKill, script)
			s.wantLine("ready")
			s.clock.pass(testTTL - testMargin - testGrace)
			s.wantStop(StageTerm, ErrHoldEnded)
			s.clock.pass(testGrace)
			s.wantNothingLeft()
			if left := s.hold.Left(); left <= 0 {
				t.Errorf("the last process has ended %s after the hold", -left)
			}
			s.wantEnd(Outcome{Status: -1, Cause: ErrHoldEnded})
		})
		t.Run(name+", and the lock is lost", func(t *testing.T) {
			s := superviseScript(t, OnLostKill, script)
			s.wantLine("ready")
			s.hold.lose()
			s.wantStop(StageKill, ErrHoldEnded)
			s.wantEnd(Outcome{Status: -1, Cause: ErrHoldEnded})
		})
	}
}

func TestTheHoldEndsTheCommandByThePolicy(t *testing.T) {
	const cleansUp = `trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.01; done`
	const obstinate = `trap "echo term" TERM; echo ready; while :; do sleep 0.01; done`
	killed := Outcome{Status: 128 + 9, Cause: ErrHoldEnded}
	t.Run("a command has the grace to clean up", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, cleansUp)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - testGrace)
		s.wantStop(StageTerm, ErrHoldEnded)
		s.wantLine("cleaned")
		s.wantEnd(Outcome{Status: 7, Cause: ErrHoldEnded})
	})
	t.Run("a stopped command, too", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, `trap 'echo cleaned; exit 7' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done`)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - testGrace)
		s.wantStop(StageTerm, ErrHoldEnded)
		s.wantLine("cleaned")
		s.wantEnd(Outcome{Status: 7, Cause: ErrHoldEnded})
	})
	t.Run("a renewed lock stops nothing", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, `echo ready; sleep 1000; exit 3`)
		s.wantLine("ready")
		for range 100 {
			s.clock.pass(testTTL / 3)
			s.hold.prolong(testTTL)
		}
		s.hold.lose()
		s.wantStop(StageKill, ErrHoldEnded)
		s.wantEnd(killed)
	})
	t.Run("a renewal after TERM does not put KILL off", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, obstinate)
		s.wantLine("ready")
		s.clock.pass(testTTL - testMargin - testGrace)
		s.wantStop(StageTerm, ErrHoldEnded)
		s.hold.prolong(testTTL)
		s.wantLine("term")
		s.clock.pass(testGrace)
		s.wantStop(StageKill, ErrHoldEnded)
		s.wantEnd(killed)
	})
	t.Run("after a suspension beyond the ttl there is no grace", func(t *testing.T) {
		s := superviseScript(t, OnLostKill, cleansUp)
		s.wantLine("ready")
		s.clock.pass(2 * testTTL)
		s.wantStop(StageKill, ErrHoldEnded)
		s.wantEnd(killed)
	})
	t.Run("with term, TERM is all", func(t *testing.T) {
		s := superviseScript(t, OnLostTerm, `n=0; trap 'n=$((n+1)); echo term' TERM; echo ready; while [ $n = 0 ]; do sleep 0.01; done; exit 5`)
		s.wantLine("ready")
		s.hold.lose()
		s.wantStop(StageTerm, ErrHoldEnded)
		s.wantLine("term")
		s.wantEnd(Outcome{Status: 5, Cause: ErrHoldEnded})
	})
	t.Run("with ignore, nothing happens", func(t *testing.T) {
		fifo := newFIFO(t)
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

func newFIFO(t *testing.T) string {
	t.Helper()
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return fifo
}

func TestTheRunGoesOnWhileTheGroupHasProcesses(t *testing.T) {
	for name, script := range map[string]string{
		"background child": `(read x <"$0"; echo late) & echo ready; exit 4`,
		"orphan":           `( (read x <"$0"; echo late) & ); echo ready; exit 4`,
	} {
		t.Run(name, func(t *testing.T) {
			fifo := newFIFO(t)
			s := superviseScript(t, OnLostKill, strings.ReplaceAll(script, `"$0"`, fifo))
			s.wantLine("ready")
			writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the process is there
			if err != nil {
				t.Fatal(err)
			}
			s.clock.pass(testGrace - time.Minute)
			if _, err := writer.WriteString("go\n"); err != nil {
				t.Error(err)
			}
			_ = writer.Close()
			s.wantLine("late")
			s.wantEnd(Outcome{Status: 4})
		})
	}
	t.Run("after the grace they are killed", func(t *testing.T) {
		s := superviseWithGrace(t, OnLostKill, time.Second, `(trap "" TERM; echo ready; while :; do sleep 1000; done) & exit 4`)
		s.wantLine("ready")
		s.wantStop(StageKill, nil)
		s.wantEnd(Outcome{Status: 4})
	})
	t.Run("as they are when the hold ends, which is not the end of the command", func(t *testing.T) {
		s := superviseScript(t, OnLostKill,
			`(trap "" TERM; while [ -e /proc/$$ ]; do sleep 0.01; done; echo alone; while :; do sleep 1000; done) & exit 4`)
		s.wantLine("alone")
		s.hold.lose()
		s.wantStop(StageKill, nil)
		s.wantEnd(Outcome{Status: 4})
	})
	t.Run("but not for a zombie, which nothing ends", func(t *testing.T) {
		toChild, toScript := newFIFO(t), newFIFO(t)
		// The child ends once its parent is no shell any more, which would reap it.
		s := superviseWithGrace(t, OnLostKill, 0, `(
			(read p <`+toChild+`; until read name </proc/$p/comm && [ "$name" = sleep ]; do :; done; echo $p >`+toScript+`) &
			exec setsid sh -c 'echo $$ >`+toChild+`; exec sleep 1000 >&-'
		) & read p <`+toScript+`; echo $p; exit 4`)
		line, err := s.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		parent, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(t, parent, syscall.SIGKILL) })
		s.wantStop(StageKill, nil)
		s.wantEnd(Outcome{Status: 4})
	})
}

// newWatchedRun returns a run without a command, and a pipe with what a watcher is told.
func newWatchedRun(t *testing.T) (r *run, hold *testHold, clock *testClock, pipe *os.File) {
	t.Helper()
	far, near, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = far.Close(), near.Close() })
	clock = newTestClock()
	hold = newTestHold(clock)
	return &run{
		Supervisor: &Supervisor{clock: clock}, hold: hold, policy: Policy{OnLost: OnLostKill, Margin: testMargin}, watcher: &watcher{pipe: near},
	}, hold, clock, far
}

// It would kill this process, whose command it does not know, at once.
func TestTheWatcherIsToldNothingIfThereIsNoTimeToStart(t *testing.T) {
	r, hold, _, pipe := newWatchedRun(t)
	hold.lose()
	if r.advance(); r.stage != StageKill {
		t.Errorf("the stage is %d", r.stage)
	}
	if left := unread(t, pipe); left != 0 {
		t.Errorf("the watcher was told %d bytes", left)
	}
}

// While this process was late, the watcher may have killed, though the hold was prolonged meanwhile.
func TestTheWatcherHasTheSayAfterItsDeadline(t *testing.T) {
	r, hold, clock, _ := newWatchedRun(t)
	for _, step := range []struct {
		passes time.Duration
		want   Stage
	}{{0, StageRun}, {testTTL - testMargin, StageRun}, {testTTL - testMargin/2, StageKill}} {
		clock.pass(step.passes)
		hold.prolong(testTTL)
		if r.advance(); r.stage != step.want {
			t.Errorf("%s later, the stage is %d, want %d", step.passes, r.stage, step.want)
		}
	}
	if !errors.Is(r.outcome.Cause, ErrHoldEnded) {
		t.Errorf("the cause is %v", r.outcome.Cause)
	}
}
