package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// runStepping runs a command while another goroutine does something with the clock, once
// the command waits on it with this many timers.
func runStepping(t *testing.T, options session.Options, step func(*clocktesting.FakeClock), args ...string) result {
	t.Helper()
	stepped := clocktesting.NewFakeClock(now)
	options.Clock = stepped
	done := make(chan struct{})
	stepping := make(chan struct{})
	go func() {
		defer close(stepping)
		for !stepped.HasWaiters() {
			select {
			case <-done:
				return
			default:
			}
		}
		step(stepped)
	}()
	got := run(t, options, args...)
	close(done)
	<-stepping
	return got
}

func TestWait(t *testing.T) {
	t.Run("for a lock that is free", func(t *testing.T) {
		got := run(t, session.Options{Cluster: fakeCluster()}, "wait", "a", "-n", "payments")
		if got.status != 0 || got.out != "a is free\n" {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("for a lock that is held", func(t *testing.T) {
		got := run(t, session.Options{Cluster: fakeCluster(payments()...)}, "wait", "deploy", "-n", "payments", "--for", "held")
		if got.status != 0 || got.out != "deploy is held\n" {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("until it expires, whose object stays", func(t *testing.T) {
		got := runStepping(t, session.Options{Cluster: fakeCluster(payments()...)}, func(clock *clocktesting.FakeClock) {
			clock.Step(28 * time.Second)
		}, "wait", "billing:report", "-n", "payments")
		if got.status != 0 {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("until it is released", func(t *testing.T) {
		// A deletion between the list and the watch would be lost: the fake cluster keeps no changes.
		cluster := interceptor.NewClient(fakeCluster(payments()...), interceptor.Funcs{
			Watch: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				changes, err := next.Watch(ctx, list, options...)
				if err := next.Delete(ctx, heldLock("payments", "billing:report", nil)); err != nil {
					t.Error(err)
				}
				return changes, err
			},
		})
		got := run(t, session.Options{Cluster: cluster}, "wait", "billing:report", "-n", "payments")
		if got.status != 0 {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
}

func TestWaitInVain(t *testing.T) {
	t.Run("for its end", func(t *testing.T) {
		got := runStepping(t, session.Options{Cluster: fakeCluster(payments()...)}, func(clock *clocktesting.FakeClock) {
			clock.Step(10 * time.Second)
		}, "wait", "deploy", "-n", "payments", "--timeout", "10s")
		// The holder is named if the list was faster than the clock.
		if got.status != int(failure.Busy) || !strings.Contains(got.errOut, "deploy is not known to be free after 10s") && !strings.Contains(got.errOut, "deploy is still held after 10s, by carol@example.com") {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("for a holder", func(t *testing.T) {
		got := runStepping(t, session.Options{Cluster: fakeCluster()}, func(clock *clocktesting.FakeClock) {
			clock.Step(10 * time.Second)
		}, "wait", "a", "--for", "held", "-n", "payments", "--timeout", "10s")
		if got.status != int(failure.NotHeld) {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
}

// The lock is released once the command has asked for its changes, which the façade shows or does not.
func TestWaitThroughAFacade(t *testing.T) {
	for name, isShown := range map[string]bool{"that shows changes": true, "that shows none": false} {
		t.Run(name, func(t *testing.T) {
			stepped := clocktesting.NewFakeClock(now)
			locks := locktest.New(locktest.WithClock(stepped))
			request := lock.Request{Acquisition: rules.Acquisition{Key: "a", Owner: "o", TTL: time.Hour}}
			if _, err := locks.Acquire(t.Context(), "", request); err != nil {
				t.Fatal(err)
			}
			release := func(ctx context.Context, call locktest.Call) error {
				if call.Verb == locktest.Watch {
					return locks.Release(ctx, "", call.Key, lock.Proof{Owner: "o"})
				}
				return nil
			}
			if isShown {
				locks.SetHooks(locktest.Hooks{After: release})
			} else {
				locks.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
					return errors.Join(release(ctx, call), locktest.Failing(locktest.Watch, lock.ErrForbidden)(ctx, call))
				}})
			}
			got := run(t, session.Options{Locks: locks, Clock: stepped}, "wait", "a")
			if got.status != 0 || got.out != "a is free\n" {
				t.Errorf("status %d: %s", got.status, got)
			}
		})
	}
}

func TestWaitForWhatIsAsked(t *testing.T) {
	t.Run("through a façade", func(t *testing.T) {
		got := run(t, session.Options{Locks: locktest.New()}, "wait", "a")
		if got.status != 0 || got.out != "a is free\n" {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("with an invalid key", func(t *testing.T) {
		if got := run(t, session.Options{}, "wait", strings.Repeat("k", v1alpha1.MaxKeyBytes+1)); got.status != int(failure.Usage) {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
	t.Run("for something else", func(t *testing.T) {
		if got := run(t, session.Options{}, "wait", "a", "--for", "godot"); got.status != int(failure.Usage) {
			t.Errorf("status %d: %s", got.status, got)
		}
	})
}
