//go:build linux

package run_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

func TestRunPassesTheExitStatusOn(t *testing.T) {
	service := newService(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -9 $$": 137, "kill -2 $$": 130} {
		service.start(t, key, "--", "sh", "-c", script).wantEnd(want)
		service.wantFree(t)
	}
}

func TestTheCommandKnowsItsLock(t *testing.T) {
	service := newService(t)
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r := service.start(t, key, "--reason", "nightly", "--", "sh", "-c",
		`echo $FORRST_LOCK_KEY $FORRST_LOCK_FENCING_TOKEN $(cat $FORRST_LOCK_TOKEN_FILE) $(stat -c %a $FORRST_LOCK_TOKEN_FILE $(dirname $FORRST_LOCK_TOKEN_FILE)) $FORRST_LOCK_TOKEN_FILE; read x <`+fifo)
	got := r.line()
	held := service.All()[0]
	token, err := held.FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{key, itoa(token), held.Spec.Owner, "600", "700"}; strings.Join(got[:5], " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.HasPrefix(got[5], r.runtime) {
		t.Errorf("the token is in %s, not in XDG_RUNTIME_DIR", got[5])
	}
	if held.Spec.Reason != "nightly" {
		t.Errorf("reason %q", held.Spec.Reason)
	}
	if err := os.WriteFile(fifo, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantEnd(0)
	service.wantFree(t)
}

func TestARunBelowAnother(t *testing.T) {
	service := newService(t)
	r := service.start(t, key, "--", os.Args[0], "run", "--server", service.url, "other", "--", "env")
	var values []string
	var runs []struct {
		Server, Namespace, Key string
		FencingToken           int64
	}
	for {
		name, value, _ := strings.Cut(strings.Join(r.line(), " "), "=")
		if name == "FORRST_LOCK_RUNS" {
			if err := json.Unmarshal([]byte(value), &runs); err != nil {
				t.Errorf("%s: %v", value, err)
			}
		}
		if name == "FORRST_LOCK_KEY" {
			values = append(values, value)
		}
		if name == "FORRST_LOCK_TOKEN_FILE" { // It comes after the key.
			break
		}
	}
	if !slices.Equal(values, []string{"other"}) {
		t.Errorf("the keys are %q", values)
	}
	if len(runs) != 2 || runs[0].Key != key || runs[1].Key != "other" || runs[0].FencingToken <= 0 || runs[1].FencingToken <= runs[0].FencingToken {
		t.Errorf("the runs are %+v, want both, the outermost first", runs)
	}
	for _, each := range runs {
		if each.Server != service.url || each.Namespace != "" { // that of the caller
			t.Errorf("a run at %q in namespace %q", each.Server, each.Namespace)
		}
	}
	r.wantEnd(0)
	service.wantFree(t)
}

// Whoever waits for a run that waits for them waits forever, and everybody behind them.
func TestARunUnderItsOwnLock(t *testing.T) {
	service := newService(t)
	again := []string{os.Args[0], "run", "--server", service.url, key, "--", "true"}
	other := append([]string{os.Args[0], "run", "--server", service.url, "other", "--"}, again...)
	for name, inner := range map[string][]string{"at once": again, "under another": other} {
		t.Run(name, func(t *testing.T) {
			r := service.start(t, append([]string{key, "--"}, inner...)...)
			r.wantEnd(201)
			if got := r.errors.String(); !strings.Contains(got, "backup is held by the kubectl lock run that has started this command") {
				t.Errorf("stderr: %s", got)
			}
			service.wantFree(t)
		})
	}
	// The same key is another lock elsewhere.
	elsewhere := newService(t)
	r := service.start(t, key, "--", os.Args[0], "run", "--server", elsewhere.url, key, "--", "true")
	r.wantEnd(0)
	service.wantFree(t)
}

// occupy has another holder take the lock of the key.
func occupy(t *testing.T, service *service, key string) (release func()) {
	t.Helper()
	request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: "rival", TTL: time.Hour}}
	if _, err := service.Acquire(t.Context(), namespace, request); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := service.Release(t.Context(), namespace, v1alpha1.FullKeyOf(key), lock.Proof{Owner: "rival"}); err != nil {
			t.Error(err)
		}
	}
}

func TestABusyLock(t *testing.T) {
	service := newService(t)
	release := occupy(t, service, key)
	for name, test := range map[string]struct {
		flags  []string
		status int
		text   string
	}{
		"fail":                         {[]string{"--on-busy", "fail"}, 201, "alice"},
		"fail with a status":           {[]string{"--on-busy", "fail", "--conflict-exit-code", "75"}, 75, "alice"},
		"fail with success":            {[]string{"--on-busy", "fail", "--conflict-exit-code", "0"}, 0, "alice"},
		"skip":                         {[]string{"--on-busy", "skip"}, 0, "skipped"},
		"a wait that is too short":     {[]string{"--wait", "10ms"}, 201, "waiting: backup is held by alice"},
		"the same, with a status":      {[]string{"--wait", "10ms", "--conflict-exit-code", "9"}, 9, "alice"},
		"a wait of zero":               {[]string{"--wait", "0"}, 201, "alice"},
		"usage: wait with skip":        {[]string{"--on-busy", "skip", "--wait", "1s"}, 205, "--wait"},
		"usage: long grace":            {[]string{"--grace", "20s"}, 205, "grace"},
		"usage: short ttl":             {[]string{"--ttl", "10ms"}, 205, "ttl"},
		"usage: unknown on-lost":       {[]string{"--on-lost", "weep"}, 205, "weep"},
		"usage: unknown on-busy":       {[]string{"--on-busy", "weep"}, 205, "weep"},
		"usage: status out of bounds":  {[]string{"--conflict-exit-code", "256"}, 205, "256"},
		"usage: negative wait":         {[]string{"--wait", "-1s"}, 205, "negative"},
		"usage: negative grace":        {[]string{"--grace", "-1s"}, 205, "negative"},
		"a program that does not exit": {[]string{"--on-busy", "fail", "--ttl", "1m"}, 201, "held"},
	} {
		t.Run(name, func(t *testing.T) {
			service.start(t, append(append([]string{key}, test.flags...), "--", "sh", "-c", "echo started")...).wantEnd(test.status, test.text)
		})
	}
	for index, flags := range [][]string{nil, {"--wait", "forever"}} {
		if index > 0 {
			release = occupy(t, service, key)
		}
		t.Run(strings.Join(append([]string{"it becomes free"}, flags...), " "), func(t *testing.T) {
			waiting := make(chan struct{})
			service.SetHooks(hookWaiting(waiting))
			r := service.start(t, append(append([]string{key}, flags...), "--", "echo", "started")...)
			select {
			case <-waiting:
			case <-time.After(patience):
				t.Fatal("it does not wait")
			}
			release()
			if got := r.line()[0]; got != "started" {
				t.Errorf("got %q", got)
			}
			r.wantEnd(0)
		})
	}
}

func TestASignalEndsTheWait(t *testing.T) {
	for _, with := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		service := newService(t)
		release := occupy(t, service, key)
		waiting := make(chan struct{})
		service.SetHooks(hookWaiting(waiting))
		r := service.start(t, key, "--", "echo", "started")
		<-waiting
		kill(t, r.program.Process.Pid, with)
		r.wantEnd(128 + int(with))
		release()
		service.wantFree(t)
	}
}

func TestACommandThatCannotBeStarted(t *testing.T) {
	service := newService(t)
	service.start(t, key, "--").wantEnd(205, "--")
	service.start(t, key).wantEnd(205, "--")
	service.start(t, "--", "true").wantEnd(205, "KEY")
	service.wantFree(t)
}

// env tells its callers by two statuses, and says of a script what run says.
func TestACommandThatCannotBeExecuted(t *testing.T) {
	service, folder := newService(t), t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := write("text", "text", 0o600)
	program, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	unloadable := strings.Replace(string(loaded), "/ld-linux", "/no-linux", 1)
	if unloadable == string(loaded) {
		t.Fatalf("%s has no loader of glibc", program)
	}
	for name, test := range map[string]struct {
		path   string
		status int
		texts  []string
	}{
		"no file":                  {"/nonexistent", 127, []string{"no such file or directory", "backup was not taken"}},
		"no program of the name":   {"no-such-program-here", 127, []string{"no-such-program-here", "backup was not taken"}},
		"a file of the name here":  {"run_test.go", 127, []string{"executable file not found", "backup was not taken"}},
		"no right":                 {text, 126, []string{"permission denied", "backup was not taken"}},
		"a folder":                 {folder, 126, []string{"is a directory", "backup was not taken"}},
		"a script of Windows":      {write("crlf", "#!/bin/sh\r\nexit\r\n", 0o700), 127, []string{`crlf cannot be executed: its interpreter "/bin/sh\r" was not found`, "backup was released", "as on Windows"}},
		"no interpreter":           {write("none", "#! /nonexistent\t-e\n", 0o700), 127, []string{`its interpreter "/nonexistent"`, "backup was released"}},
		"no loader":                {write("loaded", unloadable, 0o700), 127, []string{"loaded cannot be executed: its loader was not found", "backup was released"}},
		"no right to interpret":    {write("forbidden", "#!"+text+"\n", 0o700), 126, []string{"permission denied", "backup was released"}},
		"a program for no machine": {write("program", "\x7fELF", 0o700), 126, []string{"exec format error", "backup was released", runtime.GOARCH}},
	} {
		t.Run(name, func(t *testing.T) {
			service.start(t, key, "--", test.path).wantEnd(test.status, test.texts...)
			service.wantFree(t)
			env := exec.CommandContext(t.Context(), "env", test.path)
			// It hands a program for another machine to sh.
			if _ = env.Run(); test.texts[0] != "exec format error" && env.ProcessState.ExitCode() != test.status {
				t.Errorf("the status of env is %d", env.ProcessState.ExitCode())
			}
		})
	}
}

func TestAServiceThatDoesNotAnswer(t *testing.T) {
	silent := &service{url: "http://127.0.0.1:1"}
	silent.start(t, key, "--request-timeout", "100ms", "--", "true").wantEnd(203)
	unavailable := newService(t)
	unavailable.SetUnavailable(true)
	unavailable.start(t, key, "--request-timeout", "100ms", "--", "true").wantEnd(203)
}

// stubborn ignores TERM, as do its child and an orphan.
const stubborn = `trap "" TERM; (sleep 1000 &) ; sleep 1000 & echo ready; wait`

func TestALostLock(t *testing.T) {
	t.Parallel()
	t.Run("the service is gone for longer than the ttl", func(t *testing.T) {
		t.Parallel()
		service := newService(t)
		r := service.start(t, key, "--ttl", "8s", "--", "sh", "-c", stubborn)
		r.line()
		service.SetUnavailable(true)
		r.wantEnd(202, "sending TERM", "killing the command")
		if held := service.All(); len(held) != 1 {
			t.Fatalf("%d locks", len(held))
		}
	})
	t.Run("the service is gone for a moment", func(t *testing.T) {
		t.Parallel()
		service := newService(t)
		r := service.start(t, key, "--ttl", "12s", "--", "sh", "-c", `echo ready; sleep 13; exit 5`)
		r.line()
		renewed := make(chan struct{})
		service.SetHooks(failRenewals(2, renewed))
		<-renewed
		r.wantEnd(5)
		service.wantFree(t)
	})
	t.Run("ignored", func(t *testing.T) {
		t.Parallel()
		service := newService(t)
		r := service.start(t, key, "--ttl", "8s", "--on-lost", "ignore", "--", "sh", "-c", `echo ready; sleep 9; exit 6`)
		r.line()
		if err := service.ForceRelease(t.Context(), namespace, fullKey, "test"); err != nil {
			t.Fatal(err)
		}
		r.wantEnd(6)
	})
}

// startStubborn runs the stubborn command, and returns what waits until all its processes have ended.
func (s *service) startStubborn(t *testing.T, flags ...string) (r *started, waitForEnd func()) {
	t.Helper()
	alive := t.TempDir() + "/alive"
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	r = s.start(t, append(append([]string{key}, flags...), "--", "sh", "-c", "exec 9>"+alive+"\n"+stubborn)...)
	ended, err := os.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	r.line()
	return r, func() {
		t.Helper()
		defer ended.Close()                                   //nolint:errcheck // nothing was written
		if _, err := io.Copy(io.Discard, ended); err != nil { // until no process has it open
			t.Fatal(err)
		}
	}
}

// The next renewal would tell after 20 minutes. No program can learn of a forced release before it is done.
func TestAForcedReleaseIsNoticedAtOnce(t *testing.T) {
	var took []time.Duration
	for range 20 {
		service := newService(t)
		r, waitForEnd := service.startStubborn(t, "--ttl", "1h")
		released := time.Now()
		if err := service.ForceRelease(t.Context(), namespace, fullKey, "test"); err != nil {
			t.Fatal(err)
		}
		waitForEnd()
		took = append(took, time.Since(released))
		r.wantEnd(202, "killing the command", "released by you or by force")
	}
	t.Logf("the last process has ended %s after the forced release", took)
}

// startBeating runs a command whose processes ignore TERM, and returns what gives the time when one of them last
// wrote to a file. A process that was killed writes nothing more, though it may end later on a busy machine.
func (s *service) startBeating(t *testing.T, flags ...string) (r *started, lastBeat func() time.Time) {
	t.Helper()
	file := t.TempDir() + "/beats"
	r = s.start(t, append(append([]string{key}, flags...), "--", "env", "BEATS="+file, "sh", "-c",
		`beat='trap "" TERM; while :; do echo >"$BEATS"; sleep 0.01; done'; (sh -c "$beat" &) ; echo ready; eval "$beat"`)...)
	return r, func() time.Time {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
}

// safeTTL is the shortest ttl after which a machine may be late by a second.
const safeTTL = 10 * time.Second

// expiry returns when the only lock expires unless it is renewed.
func (s *service) expiry() time.Time { return s.All()[0].Spec.ExpireTime.Time }

func wantBefore(t *testing.T, lastBeat, expiry time.Time) {
	t.Helper()
	left := expiry.Sub(lastBeat)
	if left <= 0 {
		t.Errorf("the command has run for %s after the lock", -left)
	}
	t.Logf("the command was killed %s before the end of the lock", left)
}

func TestTheCommandEndsBeforeTheLock(t *testing.T) {
	t.Parallel()
	service := newService(t)
	r, lastBeat := service.startBeating(t, "--ttl", safeTTL.String())
	r.line()
	service.SetUnavailable(true)
	r.wantEnd(202)
	service.SetUnavailable(false)
	wantBefore(t, lastBeat(), service.expiry())
}

func TestTheCommandOfAStoppedRunEndsBeforeTheLock(t *testing.T) {
	t.Parallel()
	service := newService(t)
	r, lastBeat := service.startBeating(t, "--ttl", safeTTL.String())
	r.line()
	kill(t, r.program.Process.Pid, syscall.SIGSTOP)
	expiry := service.expiry()
	<-time.After(time.Until(expiry))
	wantBefore(t, lastBeat(), expiry)
	kill(t, r.program.Process.Pid, syscall.SIGCONT)
	r.wantEnd(202, "backup was lost, and the command was stopped")
}

// All processes stop, as those of a frozen container do, and go on after the lock has expired. Either process of run may
// be the first to see that.
func TestASuspensionBeyondTheTTL(t *testing.T) {
	for _, first := range []string{"run", "watcher"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			service := newService(t)
			r := service.start(t, key, "--ttl", safeTTL.String(), "--", "sh", "-c", "echo $$; sleep 1000 & wait")
			command, program, watcher := r.pids()[0], r.program.Process.Pid, r.watcher()
			for _, each := range []int{program, watcher, -command} {
				kill(t, each, syscall.SIGSTOP)
			}
			<-time.After(time.Until(service.expiry()))
			if first == "watcher" {
				kill(t, watcher, syscall.SIGCONT)
			}
			kill(t, program, syscall.SIGCONT)
			r.wantEnd(202, "backup was lost, and the command was stopped")
		})
	}
}

func TestKills(t *testing.T) {
	t.Run("run: the command is killed, the token is removed, the lock ends by its ttl", func(t *testing.T) {
		service := newService(t)
		r := service.start(t, key, "--ttl", "1h", "--", "sh", "-c", stubborn)
		r.line()
		// What a user kills is what the reason names.
		if held := service.All(); len(held) != 1 || !strings.HasSuffix(held[0].Spec.Reason, fmt.Sprintf("PID %d", r.program.Process.Pid)) {
			t.Errorf("the program is PID %d, and the reason another: %v", r.program.Process.Pid, held)
		}
		kill(t, r.program.Process.Pid, syscall.SIGKILL)
		if status := r.end(); status != -9 {
			t.Errorf("exit status %d", status)
		}
		r.waitForNoScratch()
		if held := service.All(); len(held) != 1 {
			t.Errorf("%d locks", len(held))
		}
	})
	t.Run("watcher: the command is killed, and the lock is released", func(t *testing.T) {
		service := newService(t)
		r := service.start(t, key, "--ttl", "1h", "--", "sh", "-c", stubborn)
		r.line()
		kill(t, r.watcher(), syscall.SIGKILL)
		r.wantEnd(200, "killing the command: the process that watches this one was killed", "the command was killed, and "+key+" was released")
		service.wantFree(t)
	})
}

func TestWhatTheCommandLeavesIsKilled(t *testing.T) {
	service := newService(t)
	r := service.start(t, key, "--grace", "1s", "--", "sh", "-c", `(trap "" TERM; echo ready; exec sleep 1000) & exit 4`)
	r.line()
	r.wantEnd(4, "killing what it has left")
	service.wantFree(t)
}
