package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/supervise"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// What has become of the lock decides, not which process or call has found out.
func TestWhatARunSaysOfItsLock(t *testing.T) {
	var stderr bytes.Buffer
	o := &runOptions{
		session: session.New(session.Options{Streams: genericiooptions.IOStreams{ErrOut: &stderr}, Clock: clock.RealClock{}}), keys: []string{"k"}, ttl: time.Minute,
		policy: supervise.Policy{OnLost: supervise.OnLostKill},
	}
	ended := func(err error) []ending { return []ending{{"k", err}} }
	silent := fmt.Errorf("%w: no answer", lock.ErrUnavailable)
	for name, test := range map[string]struct {
		result error
		status int
		text   string
	}{
		"ended":                               {o.result(supervise.Outcome{Status: 3}, ended(nil)), 3, ""},
		"ended, and the service is away":      {o.result(supervise.Outcome{Status: 3}, ended(silent)), 3, ""},
		"stopped":                             {o.result(supervise.Outcome{Status: 137, Cause: supervise.ErrHoldEnded}, ended(nil)), 202, "k was lost, and the command was stopped"},
		"not watched any more":                {o.result(supervise.Outcome{Status: 137, Cause: supervise.ErrWatcherEnded}, ended(nil)), 200, "was killed; the command was killed, and k was released"},
		"lost and not noticed":                {o.result(supervise.Outcome{}, ended(lock.ErrNotHeld)), 202, "k was lost while the command ran"},
		"lost and not noticed, and it failed": {o.result(supervise.Outcome{Status: 3}, ended(lock.ErrForceReleased)), 3, ""},
		"no time to start":                    {o.notStarted(supervise.ErrHoldEnded, ended(lock.ErrNotHeld)), 202, "k was lost before the command was started"},
		"not executed":                        {o.notStarted(&exec.Error{Name: "p", Err: syscall.E2BIG}, ended(nil)), 126, "argument list too long; k was released"},
		"not executed, and the service is away": {
			o.notStarted(&exec.Error{Name: "p", Err: syscall.E2BIG}, ended(silent)), 126, "k was not released: lock service is unavailable: no answer; it ends by itself, at the latest in 1m0s",
		},
		"not prepared":               {o.notStarted(errors.New("no room"), ended(nil)), 206, "no room; k was released"},
		"not prepared, and was lost": {o.notStarted(errors.New("no room"), ended(lock.ErrNotHeld)), 206, "no room; k was lost before"},
	} {
		t.Run(name, func(t *testing.T) {
			var printed bytes.Buffer
			if status := failure.Print(&printed, test.result, ""); status != test.status || !strings.Contains(printed.String(), test.text) {
				t.Errorf("got %d, %q; want %d, %q", status, printed.String(), test.status, test.text)
			}
		})
	}
	if strings.Count(stderr.String(), "warning: k was not released") != 1 || strings.Count(stderr.String(), "warning: k was lost before") != 1 {
		t.Errorf("the warnings are %s", stderr.String())
	}
}

// locksOf acquires a lock for each ttl, under the keys a, b and so on, and renews none.
func locksOf(t *testing.T, service *locktest.Backend, stepped *clocktesting.FakeClock, ttls ...time.Duration) *runLocks {
	t.Helper()
	found := &runLocks{clock: stepped}
	client := lock.NewClient(service, "payments", lock.WithoutRenewal(), lock.WithClock(stepped))
	for index, ttl := range ttls {
		held, err := client.TryAcquire(t.Context(), string(rune('a'+index)), lock.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		found.held = append(found.held, held)
	}
	return found
}

func TestTheHoldOfSeveralLocksIsThatOfTheFirstToEnd(t *testing.T) {
	stepped := clocktesting.NewFakeClock(now)
	held := locksOf(t, locktest.New(locktest.WithClock(stepped)), stepped, time.Minute, 10*time.Second, time.Hour)
	if left := held.Left(); left != 10*time.Second {
		t.Errorf("%s are left, want those of b", left)
	}
	if got, want := whyStopping(supervise.StageTerm, supervise.ErrHoldEnded, held.byTime()[0]), "sending TERM to the command: b could not be renewed in time"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	ended := held.Done()
	stepped.Step(11 * time.Second)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the end of b does not end the hold")
	}
	if left := held.Left(); left > 0 {
		t.Errorf("%s are left after the end of b", left)
	}
	o := &runOptions{session: session.New(session.Options{Clock: stepped})}
	endings := held.release(t.Context())
	if got, want := o.lost(endings, "").Error(), "b was lost"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	for _, ending := range endings {
		if ending.wasLost() != (ending.key == "b") {
			t.Errorf("%s: %v", ending.key, ending.err)
		}
	}
}

func TestWhichOfSeveralLocksWasLost(t *testing.T) {
	for name, test := range map[string]struct {
		stoppedFor string
		endings    []ending
		warnings   string
	}{
		"the first to end":                {"", []ending{{"lost", nil}, {"k", nil}}, ""},
		"the one that a release tells of": {"", []ending{{"k", nil}, {"lost", lock.ErrForceReleased}}, ""},
		// It could not be renewed in time, and is released well, since the service answers again.
		"the one for which the command was stopped": {"lost", []ending{{"k", nil}, {"lost", nil}}, ""},
		"one of two, of which the other may be left": {
			"lost", []ending{{"k", lock.ErrUnavailable}, {"lost", lock.ErrForceReleased}},
			"warning: k was not released: lock service is unavailable; it ends by itself, at the latest in 1m0s\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			o := &runOptions{
				session: session.New(session.Options{Streams: genericiooptions.IOStreams{ErrOut: &stderr}, Clock: clock.RealClock{}}),
				ttl:     time.Minute, stoppedFor: test.stoppedFor,
			}
			if got := o.result(supervise.Outcome{Cause: supervise.ErrHoldEnded}, test.endings).Error(); got != "lost was lost, and the command was stopped" {
				t.Error(got)
			}
			if stderr.String() != test.warnings {
				t.Errorf("the warnings are %s", stderr.String())
			}
		})
	}
}

// A service that does not answer must not delay the end by the time-out of each lock.
func TestSeveralLocksAreReleasedAtOnce(t *testing.T) {
	stepped := clocktesting.NewFakeClock(now)
	service := locktest.New(locktest.WithClock(stepped))
	held := locksOf(t, service, stepped, time.Minute, time.Minute)
	var begun atomic.Int32
	allBegun := make(chan struct{})
	service.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
		if call.Verb != locktest.Release {
			return nil
		}
		if int(begun.Add(1)) == len(held.held) {
			close(allBegun)
		}
		select {
		case <-allBegun:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	held.release(t.Context())
	if left := service.All(); len(left) > 0 {
		t.Errorf("%d locks are left", len(left))
	}
}

func TestRunRefusesWrongKeys(t *testing.T) {
	many := make([]string, lock.MaxTogether+1)
	for index := range many {
		many[index] = fmt.Sprint("k", index)
	}
	for want, keys := range map[string][]string{
		"needs 1 to 16 KEYs, and was given 17":                       many,
		`the KEY "a" is given twice` + "\n  → name each KEY once":    {"a", "b", "a"},
		"the KEY \"e\u0301\" is given twice":                         {"\u00e9", "e\u0301"},
		`the KEY "b\u200b" must not contain invisible characters`:    {"a", "b\u200b"},
		"the KEY must not contain invisible characters: character 2": {"b\u200b"},
	} {
		got := run(t, session.Options{}, append(append([]string{"run"}, keys...), "--", "true")...)
		if got.status != int(failure.Usage) || !strings.Contains(got.errOut, want) {
			t.Errorf("%v: status %d: %s", keys, got.status, got)
		}
	}
}

// Outside of Pods and other runs, no key is looked at before it is tried. That of the last grant needs no confirmation.
func TestTheRequestsOfARun(t *testing.T) {
	for want, keys := range map[string][]string{
		"acquire b":                   {"b"},
		"acquire a, acquire b, get a": {"b", "a"},
	} {
		service := locktest.New(locktest.WithRecord())
		o := &runOptions{
			session: session.New(session.Options{Locks: service, Clock: clock.RealClock{}, Pod: &session.Pod{}, Getenv: func(string) string { return "" }}),
			keys:    keys, ttl: time.Hour,
		}
		held, err := o.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var made []string
		for _, call := range service.Calls() {
			if call.Verb != locktest.Watch {
				made = append(made, fmt.Sprintf("%s %s", call.Verb, call.Key.Bare()))
			}
		}
		held.release(t.Context())
		if got := strings.Join(made, ", "); got != want {
			t.Errorf("%v: made the requests %s, want %s", keys, got, want)
		}
	}
}

// Nobody is told that the wait is over, or that the command was left out, while a lock of the set may be left.
func TestALockOfASetThatCouldNotBeGivenBackIsTold(t *testing.T) {
	stepped := clocktesting.NewFakeClock(now)
	service := locktest.New(locktest.WithClock(stepped), locktest.WithHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, lock.ErrUnavailable)}))
	if _, err := service.Acquire(t.Context(), "", lock.Request{Acquisition: rules.Acquisition{Key: "b", Owner: "rival"}}); err != nil {
		t.Fatal(err)
	}
	o := &runOptions{
		session: session.New(session.Options{Locks: service, Clock: stepped, Pod: &session.Pod{}, Getenv: func(string) string { return "" }}),
		keys:    []string{"a", "b"}, ttl: time.Minute, onBusy: busySkip,
	}
	_, err := o.acquire(t.Context())
	err = o.notAcquired(t.Context(), err)
	if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) || !strings.Contains(fmt.Sprint(err), "release lock:a") ||
		!strings.HasSuffix(fmt.Sprint(err), "the lock ends by itself, at the latest in 1m0s") {
		t.Errorf("got %v", err)
	}
}

func TestALockOfASetThatIsLostEndsTheWaitForTheOthers(t *testing.T) {
	o := &runOptions{session: session.New(session.Options{Clock: clock.RealClock{}}), keys: []string{"a", "b"}}
	got, isFailure := errors.AsType[*failure.Error](o.notAcquired(t.Context(), fmt.Errorf("lock:a: %w", lock.ErrForceReleased)))
	if !isFailure || got.Code != failure.NotHeld || len(got.Do) == 0 {
		t.Errorf("got %v", got)
	}
}
