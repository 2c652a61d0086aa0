package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// attempts returns when each acquire was sent, counted from the first, and what came of the
// last. A nil answer is that of the service.
func attempts(t *testing.T, service *locktest.Backend, answer error, options ...lock.Option) (sent []time.Duration, err error) {
	t.Helper()
	began := time.Now()
	service.SetHooks(before(func(context.Context, locktest.Call) error {
		sent = append(sent, time.Since(began))
		return answer
	}))
	_, err = lock.NewClient(service, "default").TryAcquire(t.Context(), "billing:report", options...)
	return sent, err
}

func TestRetryPausesAreExponentialWithJitter(t *testing.T) {
	different := map[time.Duration]bool{}
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			service := newBackend()
			takeOver(t, service, "rival")
			sent, err := attempts(t, service, nil, lock.WithTTL(time.Hour), lock.WithRetry(lock.RetryPolicy{}))
			if !errors.Is(err, lock.ErrHeld) {
				t.Errorf("got %v, want ErrHeld", err)
			}
			base := 100 * time.Millisecond
			for index := range sent[1:] {
				pause := sent[index+1] - sent[index]
				if pause < base/2 || pause > base*3/2 {
					t.Errorf("pause %d is %s, want %s give or take half", index+1, pause, base)
				}
				different[pause] = true
				base *= 2
			}
			// 100 + 200 + 400 + 800 + 1600 ms fit into 5 s, give or take, 3200 ms more may.
			if len(sent) < 5 || len(sent) > 8 || sent[len(sent)-1] > 5*time.Second {
				t.Errorf("attempts at %v, want them to stop at the ceiling of 5s", sent)
			}
		})
	}
	if len(different) < 200 {
		t.Errorf("only %d different pauses, want jitter", len(different))
	}
}

func TestRetryPolicyIsSettable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		policy := lock.RetryPolicy{Base: time.Second, Factor: 3, Jitter: -1, Tries: 4, Ceiling: time.Minute}
		sent, err := attempts(t, service, lock.ErrUnavailable, lock.WithRetry(policy))
		if !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		want := []time.Duration{0, time.Second, 4 * time.Second, 13 * time.Second}
		if len(sent) != len(want) || sent[1] != want[1] || sent[2] != want[2] || sent[3] != want[3] {
			t.Errorf("attempts at %v, want %v", sent, want)
		}
	})
}

func TestRetryDefaultTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		if sent, _ := attempts(t, service, lock.ErrUnavailable, lock.WithRetry(lock.RetryPolicy{Base: time.Millisecond, Factor: 1})); len(sent) != 10 {
			t.Errorf("%d attempts, want 10", len(sent))
		}
	})
}

func TestRetryGetsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		first := mustHold(t, client)
		time.AfterFunc(time.Second, func() { mustRelease(t, first) })
		second, err := client.TryAcquire(t.Context(), "billing:report", lock.WithRetry(lock.RetryPolicy{}))
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, second)
	})
}

func TestRetryIsNotForEveryError(t *testing.T) {
	for name, answer := range map[string]error{
		"invalid request":       lock.ErrInvalid,
		"the wait is over":      errors.Join(lock.ErrTimeout, lock.ErrHeld),
		"an undocumented fault": errors.New("forbidden"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				if sent, err := attempts(t, service, answer, lock.WithRetry(lock.RetryPolicy{})); len(sent) != 1 || !errors.Is(err, answer) {
					t.Errorf("%d attempts, %v; want one", len(sent), err)
				}
			})
		})
	}
}

func TestRetryIsCancellable(t *testing.T) {
	for name, failure := range map[string]error{"unavailable": lock.ErrUnavailable, "held": &lock.HeldError{Key: key, Holder: "rival"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				service.SetHooks(before(locktest.Failing(locktest.Acquire, failure)))
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				_, err := lock.NewClient(service, "default").TryAcquire(ctx, "billing:report", lock.WithRetry(lock.RetryPolicy{Base: time.Minute, Ceiling: time.Hour}))
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				// That another has the lock would say that the wait has ended, and not its context.
				if _, isInterrupted := errors.AsType[*lock.InterruptedError](err); !isInterrupted || errors.Is(err, lock.ErrHeld) {
					t.Errorf("got %v, want an InterruptedError", err)
				}
			})
		})
	}
}

func TestRetryEndsAHangingAttemptAtTheCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(before(func(ctx context.Context, _ locktest.Call) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		began := time.Now()
		_, err := lock.NewClient(service, "default").TryAcquire(t.Context(), "billing:report", lock.WithRetry(lock.RetryPolicy{}))
		if !errors.Is(err, lock.ErrUnavailable) || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v; want ErrUnavailable after 5s", time.Since(began), err)
		}
	})
}

// TestRetryOfAWaitingAcquire shows that a service that restarts during a long wait does
// not end it.
func TestRetryOfAWaitingAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		var restarted bool
		service.SetHooks(before(func(context.Context, locktest.Call) error {
			if restarted {
				return nil
			}
			restarted = true
			pass(time.Minute)
			return lock.ErrUnavailable
		}))
		client := lock.NewClient(service, "default", lock.WithRetry(lock.RetryPolicy{}))
		mustRelease(t, mustHold(t, client, lock.WithWait(2*time.Minute)))
		if wait := acquisitions(service)[1].Wait; wait > time.Minute || wait < 55*time.Second {
			t.Errorf("the second attempt waits %s, want what is left of two minutes", wait)
		}
	})
}
