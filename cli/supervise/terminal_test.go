//go:build linux

package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is a pseudo-terminal with a session of its own.
type screen struct {
	t      *testing.T
	master *os.File
	shell  *exec.Cmd
	seen   bytes.Buffer
}

// newScreen starts the program as the leader of the session of a terminal.
func newScreen(t *testing.T, program string, arguments ...string) *screen {
	t.Helper()
	descriptor, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	master := os.NewFile(uintptr(descriptor), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(descriptor, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(descriptor, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close() //nolint:errcheck // the other end may be gone
	s := &screen{t: t, master: master, shell: exec.CommandContext(t.Context(), program, arguments...)}
	s.shell.Env = append(os.Environ(), "PS1=prompt>", "TERM=dumb", "PROGRAM="+os.Args[0], "HISTFILE=")
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = terminal, terminal, terminal
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.shell.Process.Kill()
		_ = s.shell.Wait()
	})
	return s
}

// newShell starts bash with job control. $RUN is the program.
func newShell(t *testing.T) *screen {
	t.Helper()
	s := newScreen(t, "bash", "--norc", "--noprofile", "-i")
	s.want("prompt>")
	s.write("bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo; run() { " + roleVariable + "=" + roleProgram + " $PROGRAM \"$@\"; }\n")
	s.want("prompt>")
	return s
}

func (s *screen) write(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// want waits until the terminal shows what the pattern matches, forgets all up to there, and returns the match.
func (s *screen) want(pattern string) []string {
	s.t.Helper()
	expression := regexp.MustCompile(pattern)
	_ = s.master.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 4096)
	for {
		if found := expression.FindSubmatchIndex(s.seen.Bytes()); found != nil {
			match := expression.FindStringSubmatch(s.seen.String())
			s.seen.Next(found[1])
			return match
		}
		n, err := s.master.Read(buffer)
		if err != nil {
			s.t.Fatalf("want %s, %v; seen: %q", pattern, err, s.seen.String())
		}
		s.seen.Write(buffer[:n])
	}
}

const interrupt, suspend = "\x03", "\x1a"

func TestTerminalWithoutAShell(t *testing.T) {
	direct := func(t *testing.T, script string) *screen {
		t.Helper()
		t.Setenv(roleVariable, roleProgram)
		return newScreen(t, os.Args[0], "sh", "-c", script)
	}
	wantStatus := func(t *testing.T, s *screen, want int) {
		t.Helper()
		_ = s.shell.Wait()
		if got := exitStatus(s.shell); got != want {
			t.Errorf("exit status %d, want %d", got, want)
		}
	}
	t.Run("^C ends the command", func(t *testing.T) {
		s := direct(t, "echo ready; exec sleep 1000")
		s.want("ready")
		s.write(interrupt)
		wantStatus(t, s, -2) // as without the program
	})
	t.Run("it has the terminal from its first instruction", func(t *testing.T) {
		// The fifth and eighth are its process group and the terminal's foreground one.
		s := direct(t, "read a b c d e f g h i </proc/self/stat; echo is first: $((e == h)).; grep SigIgn /proc/self/status; exit 4")
		if got := s.want(`is first: (\d)\.`)[1]; got != "1" {
			t.Error("another process group has the terminal")
		}
		if ignores(t, s.want(`SigIgn:\s+\w+\r`)[0], syscall.SIGTTOU) {
			t.Error("it ignores TTOU, as the program does")
		}
		wantStatus(t, s, 4)
	})
	t.Run("^Z has no effect, as there is no shell to continue it", func(t *testing.T) {
		s := direct(t, "stty -echo; echo ready; read x; echo got $x; exit 5")
		s.want("ready")
		s.write(suspend)
		s.write("line\n")
		s.want("got line")
		wantStatus(t, s, 5)
	})
	t.Run("a command that cannot be executed gives it back", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(file, []byte("no program"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv(roleVariable, roleProgram)
		s := newScreen(t, "sh", "-c", `"$PROGRAM" `+file+`; read x; echo got $x`)
		s.write("line\n")
		s.want("got line")
	})
	t.Run("the settings of the terminal are restored after a kill", func(t *testing.T) {
		s := direct(t, "stty raw -echo; echo pid $$.; sleep 1000")
		pid, _ := strconv.Atoi(s.want(`pid (\d+)\.`)[1])
		kill(t, -pid, syscall.SIGKILL)
		wantStatus(t, s, 137)
		after, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
		if err != nil || after.Lflag&unix.ICANON == 0 || after.Lflag&unix.ECHO == 0 {
			t.Errorf("the terminal is raw, %v", err)
		}
	})
}

func TestJobControl(t *testing.T) {
	t.Run("^C ends the command and not the shell", func(t *testing.T) {
		s := newShell(t)
		s.write("run sh -c 'echo rea''dy; exec sleep 1000'\n")
		s.want("ready")
		s.write(interrupt)
		s.want("prompt>")
		s.write("echo status=$?\n")
		s.want("status=130")
	})
	t.Run("^Z stops the job, fg continues it", func(t *testing.T) {
		s := newShell(t)
		s.write("run sh -c 'echo rea''dy; read x; echo got $x; exit 6'\n")
		s.want("ready")
		s.write(suspend)
		s.want("Stopped")
		s.want("prompt>")
		s.write("fg\n")
		s.want("PROGRAM")
		s.write("line\n")
		s.want("got line")
		s.want("prompt>")
		s.write("echo status=$?\n")
		s.want("status=6")
	})
	t.Run("^Z stops the renewals, and the command ends before the hold", func(t *testing.T) {
		s := newShell(t)
		s.write(ttlVariable + "=6s; export " + ttlVariable + "; run sh -c 'echo pid $$.; read x'\n")
		pid, _ := strconv.Atoi(s.want(`pid (\d+)\.`)[1])
		waitForState(t, pid, 'S')
		s.write(suspend)
		s.want("Stopped")
		s.want("prompt>")
		waitForState(t, pid, 'Z')
		s.write("fg\n")
		s.want("PROGRAM")
		s.want("prompt>")
		s.write("echo status=$?\n")
		s.want("status=" + strconv.Itoa(lostStatus))
	})
	t.Run("bg lets it run, and it stops when it reads", func(t *testing.T) {
		s := newShell(t)
		s.write("run sh -c 'echo rea''dy; read y; echo back''ground; read x; echo got $x'\n")
		s.want("ready")
		s.write(suspend)
		s.want("Stopped")
		s.want("prompt>")
		s.write("bg\n")
		s.want("PROGRAM")
		s.waitForStoppedJob()
		s.write("fg\n")
		s.want("PROGRAM")
		s.write("one\n")
		s.want("background")
		s.write("two\n")
		s.want("got two")
		s.want("prompt>")
	})
	t.Run("started in the background, it gets the terminal with fg", func(t *testing.T) {
		s := newShell(t)
		s.write("run sh -c 'echo rea''dy; read x; echo got $x; exit 7' &\n")
		s.want("ready")
		s.waitForStoppedJob() // because it reads
		s.write("fg\n")
		s.want("run sh")
		s.write("line\n")
		s.want("got line")
		s.want("prompt>")
		s.write("echo status=$?\n")
		s.want("status=7")
	})
	t.Run("behind a pipeline, it gets the terminal when it asks", func(t *testing.T) {
		s := newShell(t)
		s.write("echo piped | run sh -c 'read x; echo rea''dy; read y </dev/tty; echo got $x $y'\n")
		s.want("ready")
		s.write("line\n")
		s.want("got piped line")
		s.want("prompt>")
	})
	t.Run("^C ends a script that runs it", func(t *testing.T) {
		s := newShell(t)
		s.write("export " + roleVariable + "=" + roleProgram + "\nbash -c '$PROGRAM sh -c \"echo rea\"\"dy; exec sleep 1000\"; echo went o''n'; unset " + roleVariable + "\n")
		s.want("ready")
		s.write(interrupt)
		if got := s.want(`(?s).*prompt>`)[0]; strings.Contains(got, "went on") {
			t.Errorf("the script went on: %q", got)
		}
	})
}

// waitForStoppedJob asks the shell until it has a stopped job.
func (s *screen) waitForStoppedJob() {
	s.t.Helper()
	lookUntil(s.t, "a stopped job", func() bool {
		s.write("echo stopped=$(jobs -s | wc -l).\n")
		return s.want(`stopped=(\d)\.`)[1] != "0"
	})
}
