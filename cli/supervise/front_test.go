//go:build linux

package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFrontPassesTheExitStatusOn(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 2": 2, "exit 126": 126, "exit 127": 127, "exit 128": 128, "exit 200": 200, "exit 255": 255,
		"kill -9 $$": 137, "kill -15 $$": 143, "kill -2 $$": 130, "kill -64 $$": 192, "ulimit -c 0; kill -11 $$": 139,
	} {
		t.Run(script, func(t *testing.T) {
			r := start(t, nil, "sh", "-c", script)
			r.wantNothingLeft()
			r.wantStatus(want)
		})
	}
}

func TestFrontPassesSignalsOn(t *testing.T) {
	r := start(t, nil, os.Args[0])
	r.pids()
	for _, s := range passedOn() {
		number, _ := s.(syscall.Signal)
		t.Run(number.String(), func(t *testing.T) {
			kill(t, r.front.Process.Pid, number)
			if got := r.line(); got[0] != strconv.Itoa(int(number)) {
				t.Errorf("got signal %s, want %d", got, number)
			}
		})
	}
	kill(t, r.front.Process.Pid, syscall.SIGTERM)
	r.wantNothingLeft()
	r.wantStatus(0)
}

func TestTheDocumentNamesTheSignalsThatAreNotPassedOn(t *testing.T) {
	var names []string
	for number := syscall.Signal(1); number <= lastRealTimeSignal; number++ {
		if name := unix.SignalName(number); name != "" && !slices.Contains(passedOn(), os.Signal(number)) {
			names = append(names, strings.TrimPrefix(name, "SIG"))
		}
	}
	want := fmt.Sprintf("The signals %s and 32 to %d are not passed on", strings.Join(names, ", "), firstRealTimeSignal-1)
	if document, err := os.ReadFile("../../docs/cli-run.md"); err != nil || !strings.Contains(string(document), want) {
		t.Errorf("it does not say %q: %v", want, err)
	}
}

func TestSignalsReachTheWholeGroup(t *testing.T) {
	r := start(t, nil, "sh", "-c", `trap : USR1; (trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.01; done) & wait; wait; exit 0`)
	r.line()
	kill(t, r.front.Process.Pid, syscall.SIGUSR1)
	if got := r.line()[0]; got != "child" {
		t.Errorf("got %q", got)
	}
	r.wantNothingLeft()
	r.wantStatus(0)
}

func TestASignalEndsTheLeftovers(t *testing.T) {
	r := start(t, nil, "sh", "-c", `setsid sleep 1000 & exit 3`)
	if got := r.line()[0]; got != "leftover" {
		t.Fatalf("got %q", got)
	}
	kill(t, r.front.Process.Pid, syscall.SIGTERM)
	r.wantNothingLeft()
	r.wantStatus(3)
}

func TestASignalEndsTheWait(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			r := start(t, nil, "wait")
			r.line()
			kill(t, r.front.Process.Pid, s)
			r.wantStatus(128 + int(s))
		})
	}
}

func TestIgnoredHangUpStaysIgnored(t *testing.T) {
	nohup := exec.CommandContext(t.Context(), "sh", "-c", `trap "" HUP; exec "$0" sh -c 'kill -HUP $$; echo alive'`, os.Args[0])
	nohup.Env = append(os.Environ(), roleVariable+"="+roleProgram)
	if output, err := nohup.Output(); err != nil || string(output) != "alive\n" {
		t.Errorf("got %q, %v", output, err)
	}
}

func TestACommandIsStoppedAndContinued(t *testing.T) {
	r := start(t, nil, "sh", "-c", `echo pid $$; read x; echo $x; exit 9`)
	pid := r.pids()[0]
	kill(t, pid, syscall.SIGSTOP)
	waitForState(t, pid, 'T')
	kill(t, r.front.Process.Pid, syscall.SIGCONT)
	if _, err := io.WriteString(r.stdin, "on\n"); err != nil {
		t.Fatal(err)
	}
	if got := r.line()[0]; got != "on" {
		t.Errorf("got %q", got)
	}
	r.wantStatus(9)
}

func TestTSTPStopsTheCommand(t *testing.T) {
	r := start(t, nil, "sh", "-c", `echo pid $$; read x; exit 9`)
	pid := r.pids()[0]
	kill(t, r.front.Process.Pid, syscall.SIGTSTP)
	waitForState(t, pid, 'T')
	kill(t, r.front.Process.Pid, syscall.SIGCONT)
	_ = r.stdin.Close()
	r.wantNothingLeft()
	r.wantStatus(9)
}

func TestTSTPStopsTheFrontWithoutACommand(t *testing.T) {
	t.Run("while it waits for the lock", func(t *testing.T) {
		r := start(t, nil, "wait")
		r.line()
		kill(t, r.front.Process.Pid, syscall.SIGTSTP)
		waitForState(t, r.front.Process.Pid, 'T')
		kill(t, r.front.Process.Pid, syscall.SIGCONT)
		kill(t, r.front.Process.Pid, syscall.SIGTERM)
		r.wantStatus(128 + int(syscall.SIGTERM))
	})
	t.Run("while it waits for what the command has left", func(t *testing.T) {
		r := start(t, nil, "sh", "-c", `(trap exit TERM; echo ready; while :; do sleep 0.01; done) & exit 3`)
		// They come in any order.
		if one, other := r.line()[0], r.line()[0]; one+other != "readyleftover" && one+other != "leftoverready" {
			t.Fatalf("got %q and %q", one, other)
		}
		kill(t, r.front.Process.Pid, syscall.SIGTSTP)
		waitForState(t, r.front.Process.Pid, 'T')
		kill(t, r.front.Process.Pid, syscall.SIGCONT)
		kill(t, r.front.Process.Pid, syscall.SIGTERM)
		r.wantStatus(3)
	})
}

// waitForState waits until a process is in a state of /proc.
func waitForState(t *testing.T, pid int, want byte) {
	t.Helper()
	lookUntil(t, fmt.Sprintf("state %c of process %d", want, pid), func() bool {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		return text[bytes.LastIndexByte(text, ')')+2] == want
	})
}

func TestStandardStreams(t *testing.T) {
	t.Run("input reaches the command", func(t *testing.T) {
		r := start(t, nil, "cat")
		if _, err := io.WriteString(r.stdin, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if got := r.line()[0]; got != "hello" {
			t.Errorf("got %q", got)
		}
		_ = r.stdin.Close()
		r.wantStatus(0)
	})
	for name, redirection := range map[string]string{"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"} {
		t.Run("closed: "+name, func(t *testing.T) {
			closed := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0" sh -c 'cat; exit 8' `+redirection, os.Args[0])
			closed.Env = append(os.Environ(), roleVariable+"="+roleProgram)
			_ = closed.Run()
			if status := closed.ProcessState.ExitCode(); status != 8 {
				t.Errorf("exit status %d", status)
			}
		})
	}
	t.Run("huge output", func(t *testing.T) {
		const size = 256 << 20
		huge := exec.CommandContext(t.Context(), os.Args[0], "head", "-c", strconv.Itoa(size), "/dev/zero")
		huge.Env = append(os.Environ(), roleVariable+"="+roleProgram)
		output, err := huge.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := huge.Start(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, output); n != size || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		if err := huge.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a reader that goes away", func(t *testing.T) {
		r := start(t, nil, "yes")
		r.line()
		_ = r.output.Close()
		r.wantStatus(128 + int(syscall.SIGPIPE))
	})
	t.Run("other descriptors are inherited", func(t *testing.T) {
		file, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		r := startWith(t, nil, func(front *exec.Cmd) { front.ExtraFiles = []*os.File{file} }, "sh", "-c", "readlink /proc/self/fd/3; ls -l /proc/self/fd | grep -c -e socket: -e memfd: -e anon_inode:")
		if got := r.line()[0]; got != "/dev/null" {
			t.Errorf("descriptor 3 is %s", got)
		}
		if got := r.line()[0]; got != "0" {
			t.Errorf("the command has %s descriptors of the supervisor", got)
		}
		r.wantStatus(1)
	})
	t.Run("the environment has nothing of ours", func(t *testing.T) {
		r := start(t, nil, "sh", "-c", "env | grep -c "+linkVariable)
		if got := r.line()[0]; got != "0" {
			t.Errorf("%s variables", got)
		}
		r.wantStatus(1)
	})
}

// family prints the numbers of the supervisor, the command, and descendants in and outside of its group.
const family = `sleep 1000 & a=$!; setsid sh -c 'trap "" TERM HUP; echo $$ >"$0"; sleep 1000 & sleep 1000' "$FIFO" & read b <"$FIFO"; echo pids $PPID $$ $a $b; wait; wait`

func startFamily(t *testing.T, environment ...string) (r *running, supervisor, command, child, daemon int) {
	t.Helper()
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r = start(t, append(environment, "FIFO="+fifo), "sh", "-c", family)
	pids := r.pids()
	return r, pids[0], pids[1], pids[2], pids[3]
}

func TestKillOfEachProcess(t *testing.T) {
	t.Run("front", func(t *testing.T) {
		r, _, _, _, _ := startFamily(t)
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("supervisor", func(t *testing.T) {
		r, supervisor, _, _, _ := startFamily(t)
		kill(t, supervisor, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus, "the command was killed")
	})
	t.Run("command, and its descendants live on", func(t *testing.T) {
		r, _, command, child, daemon := startFamily(t)
		kill(t, command, syscall.SIGKILL)
		if got := r.line()[0]; got != "leftover" {
			t.Errorf("got %q", got)
		}
		kill(t, child, syscall.SIGKILL)
		kill(t, -daemon, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(137)
	})
	t.Run("front, with a stopped supervisor", func(t *testing.T) {
		r, supervisor, _, _, _ := startFamily(t)
		kill(t, supervisor, syscall.SIGSTOP)
		waitForState(t, supervisor, 'T')
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("front, with a stopped supervisor that a process of the session inherits", func(t *testing.T) {
		// Without one, the group of the supervisor is orphaned, and the kernel continues it. PID 1 of a container can be one.
		if err := becomeSubreaper(); err != nil {
			t.Fatal(err)
		}
		defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) //nolint:errcheck // it was set before
		r, supervisor, _, _, _ := startFamily(t)
		kill(t, supervisor, syscall.SIGSTOP)
		waitForState(t, supervisor, 'T')
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
		_ = unix.Kill(supervisor, syscall.SIGKILL)
		_, _ = unix.Wait4(supervisor, nil, 0, nil)
	})
	t.Run("front and supervisor, and the guard kills the descendants", func(t *testing.T) {
		r, supervisor, _, _, _ := startFamily(t)
		kill(t, supervisor, syscall.SIGSTOP)
		waitForState(t, supervisor, 'T')
		kill(t, supervisor, syscall.SIGKILL)
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("supervisor, while it waits for what the command has left", func(t *testing.T) {
		r := start(t, nil, "sh", "-c", "setsid sleep 1000 & echo pids $PPID; exit 3")
		supervisor := r.pids()[0]
		if got := r.line()[0]; got != "leftover" {
			t.Fatalf("got %q", got)
		}
		kill(t, supervisor, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus, "the command had ended")
	})
	t.Run("supervisor, while the command is stopped", func(t *testing.T) {
		r, supervisor, command, _, _ := startFamily(t)
		kill(t, command, syscall.SIGSTOP)
		kill(t, supervisor, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus)
	})
	t.Run("front and command", func(t *testing.T) {
		r, _, command, _, _ := startFamily(t)
		kill(t, command, syscall.SIGKILL)
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("supervisor and command", func(t *testing.T) {
		r, supervisor, command, _, _ := startFamily(t)
		kill(t, command, syscall.SIGKILL)
		kill(t, supervisor, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus)
	})
	t.Run("front and supervisor: the kernel kills the command", func(t *testing.T) {
		r := start(t, nil, "sh", "-c", "echo pids $PPID; exec sleep 1000")
		supervisor := r.pids()[0]
		kill(t, supervisor, syscall.SIGSTOP) // so that it kills nothing itself
		waitForState(t, supervisor, 'T')
		kill(t, supervisor, syscall.SIGKILL)
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("while it waits", func(t *testing.T) {
		r := start(t, nil, "wait")
		kill(t, r.pids()[0], syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus, "no command was started")
		r = start(t, nil, "wait")
		r.line()
		kill(t, r.front.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
}

// The hold is not renewed while its keeper is stopped, and must not outlast the command.
func TestAStoppedSupervisorIsKilled(t *testing.T) {
	r, supervisor, _, _, _ := startFamily(t, ttlVariable+"=6s")
	kill(t, supervisor, syscall.SIGSTOP)
	r.wantNothingLeft()
	r.wantStatus(lostStatus)
}

// How the supervisor ended says nothing of the hold: the time does.
func TestWhatBecomesOfTheHoldOfAKilledSupervisor(t *testing.T) {
	const killAt = time.Hour
	for name, test := range map[string]struct {
		killAt, now time.Duration
		want        error
	}{
		"before it ends":                     {killAt, killAt - 1, ErrSupervisorDied},
		"as it ends":                         {killAt, killAt, ErrHoldEnded},
		"after a suspension":                 {killAt, 2 * killAt, ErrHoldEnded},
		"as it releases, after a suspension": {0, 2 * killAt, ErrSupervisorDied},
	} {
		t.Run(name, func(t *testing.T) {
			f := &front{clock: &testClock{now: test.now}, deadline: &deadline{at: new(atomic.Int64)}}
			f.deadline.set(test.killAt)
			f.status = unix.WaitStatus(syscall.SIGKILL)
			if _, err := f.finish(nil); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// The supervisor may be stopped while it starts the command.
func TestTheDeadlineIsWatchedBeforeTheCommandIsStarted(t *testing.T) {
	clock := &testClock{now: time.Hour}
	near, far := net.Pipe()
	var told []kind
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for decoder := json.NewDecoder(far); ; {
			var next message
			if decoder.Decode(&next) != nil {
				return
			}
			told = append(told, next.Kind)
		}
	}()
	supervisor := &Supervisor{clock: clock, front: &link{conn: near, deadline: &deadline{at: new(atomic.Int64)}}}
	hold := &testHold{clock: clock}
	hold.prolong(testTTL)
	policy, _ := NewPolicy(OnLostKill, testTTL, testGrace)
	if _, err := supervisor.Run(Command{Path: "/nonexistent"}, hold, policy, Events{}); err == nil {
		t.Error("it was started")
	}
	_ = near.Close()
	if <-ended; !slices.Equal(told, []kind{kindStarting}) {
		t.Errorf("the front was told %q", told)
	}

	timer := &testTimer{clock: clock, c: make(chan struct{}, 1)}
	f := &front{clock: clock, timer: timer, tree: newTree(), deadline: &deadline{at: new(atomic.Int64)}}
	f.deadline.set(2 * time.Hour)
	f.handle(message{Kind: kindStarting})
	if timer.at != 2*time.Hour {
		t.Errorf("the front looks again at %s", timer.at)
	}
}

// A front that kills what its supervisor has left may be killed itself before it is through: then the guard has to do the rest.
func TestAFrontDoesNotKillTheGuard(t *testing.T) {
	begin := func() *exec.Cmd {
		process := exec.CommandContext(t.Context(), "sleep", "1000")
		process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		return process
	}
	timer := &testTimer{clock: &testClock{now: time.Hour}, c: make(chan struct{}, 1)}
	f := &front{
		clock: timer.clock, timer: timer, tree: newTree(), deadline: &deadline{at: new(atomic.Int64)},
		hasEnded: true, status: unix.WaitStatus(syscall.SIGKILL),
	}
	guard, leftover := begin(), begin()
	f.handle(message{Kind: kindStarting, PID: guard.Process.Pid})
	f.hasLeftover()
	if err := leftover.Wait(); err == nil || leftover.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("what was left ended with %v", err)
	}
	if f.hasLeftover() {
		t.Error("the guard counts as left")
	}
	if err := guard.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _ = guard.Wait(); guard.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the guard ended with %s", guard.ProcessState)
	}
}

// A front that is stopped does not have the hold end.
func TestAStoppedFront(t *testing.T) {
	r := start(t, []string{ttlVariable + "=6s"}, "sh", "-c", `echo pid $$; sleep 7; echo over; exit 4`)
	r.line()
	kill(t, r.front.Process.Pid, syscall.SIGSTOP)
	if got := r.line()[0]; got != "over" {
		t.Errorf("got %q", got)
	}
	r.wantNothingLeftButFront()
	kill(t, r.front.Process.Pid, syscall.SIGCONT)
	r.wantStatus(4)
}

func TestAsPID1(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
		t.Skipf("no PID namespace can be made: %v", err)
	}
	inside := func(t *testing.T, options []string, script string) *running {
		t.Helper()
		return startWith(t, nil, func(front *exec.Cmd) {
			path, err := exec.LookPath("unshare")
			if err != nil {
				t.Fatal(err)
			}
			front.Path, front.Args = path, append(append([]string{"unshare", "--pid", "--fork"}, options...), os.Args[0], "sh", "-c", script)
		})
	}
	mounted := []string{"--mount-proc"}
	t.Run("it passes the exit status on", func(t *testing.T) {
		r := inside(t, mounted, "exit 17")
		r.wantNothingLeft()
		r.wantStatus(17)
	})
	t.Run("it reaps", func(t *testing.T) {
		r := inside(t, mounted, `for i in 1 2 3 4 5 6 7 8; do (setsid true &); (true &) ; done
			while [ $(ps -e -o ppid=,stat= | grep -c "^ *[12] Z") != 0 ]; do :; done; echo reaped`)
		if got := r.line()[0]; got != "reaped" {
			t.Errorf("got %q", got)
		}
		r.wantStatus(0)
	})
	t.Run("TERM reaches the command", func(t *testing.T) {
		r := inside(t, mounted, `trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		r.line()
		kill(t, childrenOf(r.front.Process.Pid)[0], syscall.SIGTERM)
		if got := r.line()[0]; got != "term" {
			t.Errorf("got %q", got)
		}
		r.wantStatus(5)
	})
	t.Run("a killed supervisor", func(t *testing.T) {
		r := inside(t, mounted, `setsid sleep 1000 & echo pids $PPID; sleep 1000`)
		r.line()
		front := childrenOf(r.front.Process.Pid)[0]
		kill(t, childrenOf(front)[0], syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(diedStatus)
	})
	t.Run("with the /proc of another namespace", func(t *testing.T) {
		r := inside(t, nil, "sleep 1000 & kill $!; exit 18")
		r.wantNothingLeft()
		r.wantStatus(18)
	})
}

func TestTheCommandIgnoresNoMoreSignals(t *testing.T) {
	const script = "grep -e SigIgn -e SigBlk /proc/self/status"
	want, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "sh", "-c", script)
	command.Env = append(os.Environ(), roleVariable+"="+roleProgram)
	if got, err := command.Output(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestOutputIsPassedUnchanged(t *testing.T) {
	data := bytes.Repeat([]byte("\x00\xff\r\n\x1b[0m"), 10_000)
	command := exec.CommandContext(t.Context(), os.Args[0], "cat")
	command.Env = append(os.Environ(), roleVariable+"="+roleProgram)
	command.Stdin = bytes.NewReader(data)
	if output, err := command.Output(); err != nil || !bytes.Equal(output, data) {
		t.Errorf("%d bytes, %v", len(output), err)
	}
}
