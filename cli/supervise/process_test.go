//go:build linux

package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalsArePassedOn(t *testing.T) {
	r := start(t, nil, os.Args[0])
	r.line()
	for _, s := range passedOn() {
		number, _ := s.(syscall.Signal)
		t.Run(number.String(), func(t *testing.T) {
			kill(t, r.program.Process.Pid, number)
			if got := r.line(); got[0] != strconv.Itoa(int(number)) {
				t.Errorf("got signal %s, want %d", got, number)
			}
		})
	}
	kill(t, r.program.Process.Pid, syscall.SIGTERM)
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
	kill(t, r.program.Process.Pid, syscall.SIGUSR1)
	if got := r.line()[0]; got != "child" {
		t.Errorf("got %q", got)
	}
	r.wantNothingLeft()
	r.wantStatus(0)
}

func TestASignalEndsTheWait(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			r := start(t, nil, "wait")
			r.line()
			kill(t, r.program.Process.Pid, s)
			r.wantStatus(128 + int(s))
		})
	}
}

func TestTSTPStopsTheWait(t *testing.T) {
	r := start(t, nil, "wait")
	r.line()
	kill(t, r.program.Process.Pid, syscall.SIGTSTP)
	waitForState(t, r.program.Process.Pid, 'T')
	kill(t, r.program.Process.Pid, syscall.SIGCONT)
	kill(t, r.program.Process.Pid, syscall.SIGTERM)
	r.wantStatus(128 + int(syscall.SIGTERM))
}

func TestTSTPStopsTheCommandAndCONTContinuesIt(t *testing.T) {
	r := start(t, nil, "sh", "-c", `echo pid $$; read x; exit 9`)
	pid := r.pid()
	kill(t, r.program.Process.Pid, syscall.SIGTSTP)
	waitForState(t, pid, 'T')
	kill(t, r.program.Process.Pid, syscall.SIGCONT)
	_ = r.stdin.Close()
	r.wantNothingLeft()
	r.wantStatus(9)
}

func TestAnIgnoredHangUpStaysIgnored(t *testing.T) {
	nohup := exec.CommandContext(t.Context(), "sh", "-c", `trap "" HUP; exec "$0" sh -c 'kill -HUP $$; echo alive'`, os.Args[0])
	nohup.Env = append(os.Environ(), roleVariable+"="+roleProgram)
	if output, err := nohup.Output(); err != nil || string(output) != "alive\n" {
		t.Errorf("got %q, %v", output, err)
	}
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

func TestTheCommandHasTheStandardStreams(t *testing.T) {
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
	t.Run("a reader that goes away", func(t *testing.T) {
		r := start(t, nil, "yes")
		r.line()
		_ = r.output.Close()
		r.wantStatus(128 + int(syscall.SIGPIPE))
	})
	t.Run("other descriptors and the environment, with nothing of ours", func(t *testing.T) {
		file, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		script := "readlink /proc/self/fd/3; echo $(ls /proc/self/fd); env | grep -c " + watcherVariable
		plain := exec.CommandContext(t.Context(), "sh", "-c", script)
		plain.ExtraFiles = []*os.File{file}
		want, _ := plain.Output()
		r := startWith(t, nil, func(program *exec.Cmd) { program.ExtraFiles = plain.ExtraFiles }, "sh", "-c", script)
		got, err := io.ReadAll(r.lines)
		if err != nil || string(got) != string(want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		r.wantStatus(1)
	})
}

// startFamily starts a command with a child, and an orphan that ignores TERM.
func startFamily(t *testing.T, environment ...string) (r *running, command int) {
	t.Helper()
	r = start(t, environment, "sh", "-c", `sleep 1000 & (trap "" TERM HUP; (sleep 1000 &) ; echo pid $$); wait`)
	return r, r.pid()
}

// watcherOf returns the process number of the watcher of a program.
func watcherOf(t *testing.T, program int) (pid int) {
	t.Helper()
	lookUntil(t, "the watcher", func() bool {
		output, _ := exec.CommandContext(t.Context(), "pgrep", "-x", "-P", strconv.Itoa(program), watcherName).Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(output)))
		return pid != 0
	})
	return pid
}

func TestTheGroupEndsWithEitherProcess(t *testing.T) {
	for name, test := range map[string]struct {
		victim func(*running) int
		status int
	}{
		"the program is killed": {func(r *running) int { return r.program.Process.Pid }, -9},
		"the watcher is killed": {func(r *running) int { return watcherOf(t, r.program.Process.Pid) }, unwatchedStatus},
	} {
		for _, state := range []string{"runs", "is stopped"} {
			t.Run(name+", while the command "+state, func(t *testing.T) {
				r, command := startFamily(t)
				if state == "is stopped" {
					kill(t, -command, syscall.SIGSTOP)
				}
				kill(t, test.victim(r), syscall.SIGKILL)
				r.wantNothingLeft()
				r.wantStatus(test.status)
			})
		}
	}
	t.Run("both are killed: the kernel kills the command", func(t *testing.T) {
		r := start(t, nil, "sh", "-c", "echo pid $$; exec sleep 1000")
		r.line()
		kill(t, r.program.Process.Pid, syscall.SIGSTOP) // so that it kills nothing itself
		kill(t, watcherOf(t, r.program.Process.Pid), syscall.SIGKILL)
		kill(t, r.program.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		r.wantStatus(-9)
	})
	t.Run("the watcher is not told to end, as all processes of a service are", func(t *testing.T) {
		r, _ := startFamily(t)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", watcherOf(t, r.program.Process.Pid)))
		if err != nil {
			t.Fatal(err)
		}
		if !ignores(t, string(status), syscall.SIGTERM) {
			t.Error("it does not ignore TERM")
		}
		kill(t, r.program.Process.Pid, syscall.SIGKILL)
		r.wantNothingLeft()
		_ = r.program.Wait()
	})
}

// ignores reports whether a process ignores a signal, by its status in /proc.
func ignores(t *testing.T, status string, which syscall.Signal) bool {
	t.Helper()
	_, line, _ := strings.Cut(status, "SigIgn:")
	ignored, err := strconv.ParseUint(strings.Fields(line)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ignored&(1<<(which-1)) != 0
}

// The hold is not renewed while its keeper is stopped, and must not outlast the command.
func TestTheGroupOfAStoppedProgramEndsBeforeTheHold(t *testing.T) {
	r, command := startFamily(t, ttlVariable+"=6s")
	kill(t, r.program.Process.Pid, syscall.SIGSTOP)
	waitForState(t, command, 'Z')
	kill(t, r.program.Process.Pid, syscall.SIGCONT)
	r.wantNothingLeft()
	r.wantStatus(lostStatus)
}

// The command may have been started, though nothing tells of it.
func TestTheWatcherKillsAProgramThatIsLateWithItsCommand(t *testing.T) {
	stuck := exec.CommandContext(t.Context(), os.Args[0])
	stuck.Env = append(os.Environ(), roleVariable+"="+roleStuck)
	_ = stuck.Run()
	if status, _ := stuck.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %s", stuck.ProcessState)
	}
}

// startWatched starts a process group and a stopped watcher.
func startWatched(t *testing.T) (w *watcher, group *exec.Cmd) {
	t.Helper()
	group = exec.CommandContext(t.Context(), "sleep", "1000")
	group.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := group.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := startWatcher("")
	if err != nil {
		t.Fatal(err)
	}
	kill(t, w.process.Process.Pid, syscall.SIGSTOP)
	waitForState(t, w.process.Process.Pid, 'T')
	return w, group
}

// unread returns how many bytes are in a pipe.
func unread(t *testing.T, pipe *os.File) (count int) {
	t.Helper()
	connection, err := pipe.SyscallConn()
	if err == nil {
		_ = connection.Control(func(descriptor uintptr) { count, err = unix.IoctlGetInt(int(descriptor), unix.TIOCINQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestTheLastMessageToTheWatcherCounts(t *testing.T) {
	w, group := startWatched(t)
	defer w.stop()
	w.tell(group.Process.Pid, now())
	w.tell(group.Process.Pid, now()+time.Hour)
	kill(t, w.process.Process.Pid, syscall.SIGCONT)
	lookUntil(t, "the watcher to read", func() bool { return unread(t, w.pipe) == 0 })
	waitForState(t, w.process.Process.Pid, 'S')
	if err := group.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = group.Wait()
	if status, _ := group.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the group ended with %s", group.ProcessState)
	}
}

func TestAWatcherThatDoesNotReadIsKilled(t *testing.T) {
	w, group := startWatched(t)
	defer w.stop()
	for range 1 << 20 / messageSize { // more than a pipe has room for
		w.tell(group.Process.Pid, now()+time.Hour)
	}
	select {
	case <-w.ended:
	case <-time.After(patience):
		t.Error("it was not killed")
	}
	_ = group.Process.Kill()
	_ = group.Wait()
}

// As PID 1 the program gets the orphans, and nobody else reaps them, while the command runs and afterwards.
func TestAsPID1ItReapsTheGroup(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
		t.Skipf("no PID namespace can be made: %v", err)
	}
	r := startWith(t, nil, func(program *exec.Cmd) {
		path, err := exec.LookPath("unshare")
		if err != nil {
			t.Fatal(err)
		}
		program.Path, program.Args = path, []string{"unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "sh", "-c",
			"p=$(sh -c 'sleep 0.1 >/dev/null & echo $!'); while [ -e /proc/$p ]; do sleep 0.05; done; (sleep 0.1 &); exit 17"}
	})
	r.wantNothingLeft()
	r.wantStatus(17)
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
