//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes the test binary one of the processes of a test.
const roleVariable = "SUPERVISE_TEST_ROLE"

const (
	// roleProgram runs the command of its arguments.
	roleProgram = "program"
	// roleStuck tells a watcher that its command was to be started by now.
	roleStuck = "stuck"
	// roleEcho writes the numbers of the signals that it gets, until TERM comes a second time.
	roleEcho = "echo"
)

// ttlVariable is the ttl of a hold that the program prolongs at each third of it.
const ttlVariable = "SUPERVISE_TEST_TTL"

// Exit statuses of the program whose command was stopped.
const unwatchedStatus, lostStatus = 200, 202

func TestMain(m *testing.M) {
	if RunWatcher(NewClock()) {
		return
	}
	switch os.Getenv(roleVariable) {
	case roleProgram:
		os.Exit(program())
	case roleStuck:
		stuck()
	case roleEcho:
		echo()
	default:
		// Processes of tests would ignore what nohup, or a shell for its background, has this process ignore.
		for _, ignored := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
			if signal.Ignored(ignored) {
				signal.Notify(make(chan os.Signal, 1), ignored)
			}
		}
		os.Exit(m.Run())
	}
}

func program() int {
	supervisor := New(NewClock())
	defer supervisor.Close()
	if os.Args[1] == "wait" {
		err := supervisor.Prepare(context.Background(), func(ctx context.Context) error {
			fmt.Println("waiting")
			<-ctx.Done()
			return ctx.Err()
		})
		if ended, ok := errors.AsType[*SignalError](err); ok {
			return ended.Status()
		}
		return 1
	}
	ttl := time.Hour
	if text := os.Getenv(ttlVariable); text != "" {
		ttl, _ = time.ParseDuration(text)
	}
	hold, stop := newRenewedHold(ttl)
	defer stop()
	policy, err := NewPolicy(OnLostKill, ttl, ttl/10)
	if err != nil {
		panic(err)
	}
	_ = os.Unsetenv(roleVariable)
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		panic(err)
	}
	if path == os.Args[0] {
		_ = os.Setenv(roleVariable, roleEcho)
	}
	outcome, err := supervisor.Run(Command{Path: path, Args: os.Args[1:], Env: os.Environ()}, hold, policy, func(Stage, error) {})
	switch {
	case err != nil:
		panic(err)
	case errors.Is(outcome.Cause, ErrHoldEnded):
		return lostStatus
	case outcome.Cause != nil:
		return unwatchedStatus
	}
	return outcome.Status
}

// stuck is a process that is stopped while it starts its command.
func stuck() {
	watcher, err := startWatcher("")
	if err != nil {
		panic(err)
	}
	watcher.tell(0, now())
	select {}
}

// newRenewedHold returns a hold that lasts for as long as this process gets to run.
func newRenewedHold(ttl time.Duration) (*testHold, func()) {
	hold := newTestHold(NewClock())
	hold.prolong(ttl)
	ticker, stop := time.NewTicker(ttl/3), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				hold.prolong(ttl)
			case <-stop:
				return
			}
		}
	}()
	return hold, func() {
		ticker.Stop()
		close(stop)
	}
}

func echo() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, passedOn()...)
	fmt.Println("ready", os.Getpid())
	terms := 0
	for sent := range signals {
		number, _ := sent.(syscall.Signal)
		fmt.Println(strconv.Itoa(int(number)))
		if number == syscall.SIGTERM {
			terms++
			if terms == 2 {
				return
			}
		}
	}
}
