package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func TestHeldUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		pass(time.Hour)
		if err := held.Err(); err != nil {
			t.Fatalf("after an hour: %v", err)
		}
		mustRelease(t, held)
		<-held.Done()
		if err := held.Err(); !errors.Is(err, lock.ErrReleased) || !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrReleased", err)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, lock.ErrReleased) {
			t.Errorf("cause %v, want ErrReleased", cause)
		}
		requests(service)
		mustRelease(t, held)
		if err := held.Renew(t.Context(), 0); !errors.Is(err, lock.ErrReleased) {
			t.Errorf("renewal after the release: got %v, want ErrReleased", err)
		}
		pass(time.Hour)
		if got := requests(service); len(got) != 0 {
			t.Errorf("requests %v after the release, want none", got)
		}
	})
}

func TestRenewalSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		var renewed []time.Time
		service.SetHooks(before(func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Renew {
				renewed = append(renewed, time.Now())
			}
			return nil
		}))
		last := time.Now()
		held := mustHold(t, lock.NewClient(service, "default"))
		pass(20 * time.Minute)
		mustRelease(t, held)
		if len(renewed) < 109 || len(renewed) > 133 {
			t.Errorf("%d renewals in 20 minutes, want about 120", len(renewed))
		}
		different := map[time.Duration]bool{}
		for _, at := range renewed {
			pause := at.Sub(last)
			if pause < 9*time.Second || pause > 11*time.Second {
				t.Errorf("a renewal after %s, want a third of the ttl of 30s, give or take a tenth", pause)
			}
			different[pause] = true
			last = at
		}
		if len(different) < 100 {
			t.Errorf("only %d different pauses, want jitter", len(different))
		}
	})
}

func TestWithoutRenewalTheLockExpiresAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		// The answer takes a second, which is lost from the ttl.
		service.SetHooks(after(delaying(time.Second, locktest.Acquire)))
		began := time.Now()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
		<-held.Done()
		if lasted := time.Since(began); lasted != 30*time.Second {
			t.Errorf("done %s after the request was sent, want 30s", lasted)
		}
		if err := held.Err(); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("release: got %v, want ErrExpired", err)
		}
		if got := requests(service); !cmp.Equal(got, []locktest.Verb{locktest.Acquire}) {
			t.Errorf("requests %v, want no release of an expired lock", got)
		}
	})
}

// The timers are late, as in a process that was stopped.
func TestErrReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &lateClock{}
		held := mustHold(t, lock.NewClient(newBackend(), "default", lock.WithClock(clock)))
		clock.late.Store(int64(30 * time.Second))
		if err := held.Err(); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
		<-held.Done()
		_ = held.Release(t.Context())
	})
}

// The process wakes up after the lock has expired and another caller has got it under the same
// owner token.
func TestReleaseReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, clock := newBackend(), &lateClock{}
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock), lock.WithOwner("shared")))
		clock.late.Store(int64(30 * time.Second))
		requests(service)
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
		if made := requests(service); len(made) != 0 {
			t.Errorf("requests %v, want none: it may be another's lock by now", made)
		}
	})
}

func TestUnansweredRenewals(t *testing.T) {
	hang := func(ctx context.Context, call locktest.Call) error {
		if call.Verb == locktest.Renew {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	for name, hook := range map[string]locktest.Hook{
		"that fail": locktest.Failing(locktest.Renew, lock.ErrUnavailable),
		"that fail for a reason that is not documented": locktest.Failing(locktest.Renew, errors.New("forbidden")),
		"that hang": hang,
		"that hang and do not heed their context": delaying(40*time.Second, locktest.Renew),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				held := mustHold(t, lock.NewClient(service, "default"))
				service.SetHooks(before(hook))
				began := time.Now()
				<-held.Done()
				if lasted := time.Since(began); lasted != 30*time.Second {
					t.Errorf("done after %s, want 30s", lasted)
				}
				if err := held.Err(); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				if cause := context.Cause(held.Context()); cause != held.Err() { //nolint:errorlint // it is to be the very same
					t.Errorf("cause %v, want %v", cause, held.Err())
				}
				if err := held.Release(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("release: got %v, want ErrUnavailable", err)
				}
			})
		})
	}
}

func TestFailedRenewalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		began := time.Now()
		service.SetHooks(before(func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Renew && time.Since(began) < 25*time.Second {
				return lock.ErrUnavailable
			}
			return nil
		}))
		pass(time.Minute)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		if attempts := len(requests(service)); attempts < 8 || attempts > 30 {
			t.Errorf("%d requests in an outage of 15 seconds, want a few", attempts)
		}
		mustRelease(t, held)
	})
}

func forceRelease(t *testing.T, service *locktest.Backend) {
	t.Helper()
	if err := service.ForceRelease(t.Context(), "default", key, "stuck"); err != nil {
		t.Fatal(err)
	}
}

func TestLoss(t *testing.T) {
	tests := map[string]struct {
		lose func(*testing.T, *locktest.Backend)
		want error
	}{
		"force release": {
			lose: forceRelease,
			want: lock.ErrForceReleased,
		},
		"take-over": {
			lose: func(t *testing.T, service *locktest.Backend) {
				t.Helper()
				takeOver(t, service, "rival")
			},
			want: lock.ErrTakenOver,
		},
	}
	for name, test := range tests {
		for _, isUnwatched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unwatched %t", name, isUnwatched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					service := newBackend()
					if isUnwatched {
						service.SetHooks(unwatched)
					}
					held := mustHold(t, lock.NewClient(service, "default"))
					pass(time.Second)
					began := time.Now()
					test.lose(t, service)
					<-held.Done()
					if noticed := time.Since(began); isUnwatched && noticed > 11*time.Second || !isUnwatched && noticed != 0 {
						t.Errorf("noticed after %s", noticed)
					}
					for _, err := range []error{held.Err(), held.Renew(t.Context(), 0), held.Release(t.Context()), held.Release(t.Context())} {
						if !errors.Is(err, test.want) || !errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrReleased) {
							t.Errorf("got %v, want %v", err, test.want)
						}
					}
				})
			})
		}
	}
}

// A release that is the first to learn of the loss returns it.
func TestReleaseReportsALossThatItIsTheFirstToFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(unwatched)
		held := mustHold(t, lock.NewClient(service, "default"))
		takeOver(t, service, "rival")
		for range 2 {
			if err := held.Release(t.Context()); !errors.Is(err, lock.ErrTakenOver) {
				t.Errorf("got %v, want ErrTakenOver", err)
			}
		}
	})
}

func TestALaggingWatchIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := watched{newBackend(), make(chan lock.Change)}
		client := lock.NewClient(service, "default")
		former := mustHold(t, client)
		old, err := service.Get(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, former)
		held := mustHold(t, client)
		synctest.Wait()
		service.changes <- lock.Change{IsGone: true}
		service.changes <- lock.Change{Lock: old}
		service.changes <- lock.Change{Lock: old, IsGone: true}
		synctest.Wait()
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		mustRelease(t, held)
	})
}

// A lock that ended before the watch began is noticed soon; a watch that only lags behind costs no
// request.
func TestWatchThatBeginsAfterTheLoss(t *testing.T) {
	for name, isLost := range map[string]bool{"lost": true, "held": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := watched{newBackend(), make(chan lock.Change, 1)}
				service.changes <- lock.Change{IsGone: true}
				held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
				if isLost {
					forceRelease(t, service.Backend)
				} else {
					granted, err := service.Get(t.Context(), "default", key)
					if err != nil {
						t.Fatal(err)
					}
					time.AfterFunc(100*time.Millisecond, func() { service.changes <- lock.Change{Lock: granted} })
				}
				requests(service.Backend)
				pass(time.Second)
				if err := held.Err(); errors.Is(err, lock.ErrForceReleased) != isLost {
					t.Errorf("after a second: %v", err)
				}
				var want []locktest.Verb
				if isLost {
					want = []locktest.Verb{locktest.Get}
				}
				if got := requests(service.Backend); !cmp.Equal(got, want) {
					t.Errorf("requests %v, want %v", got, want)
				}
				_ = held.Release(t.Context())
			})
		})
	}
}

func TestReleaseByACancelledHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		ctx, cancel := context.WithCancel(t.Context())
		held, err := client.Acquire(ctx, "billing:report")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		pass(time.Minute)
		if err := held.Err(); err != nil {
			t.Errorf("the end of the context ended the lock: %v", err)
		}
		if !errors.Is(held.Context().Err(), context.Canceled) {
			t.Error("the context of the lock outlives the one it was acquired with")
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := service.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("get returns %v, want ErrNotHeld", err)
		}
	})
}

func TestUnansweredReleaseIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		service.SetHooks(after(locktest.Failing(locktest.Release, lock.ErrUnavailable)))
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		service.SetHooks(locktest.Hooks{})
		// The first one happened, and a rival came in.
		takeOver(t, service, "rival")
		mustRelease(t, held)
		if _, err := service.Get(t.Context(), "default", key); err != nil {
			t.Errorf("the rival's lock: %v", err)
		}
	})
}

// A lock that an unanswered renewal may have kept is released, not left to its ttl.
func TestReleaseAfterUnansweredRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(after(locktest.Failing(locktest.Renew, lock.ErrUnavailable)))
		held := mustHold(t, lock.NewClient(service, "default"))
		<-held.Done()
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if _, err := service.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("get returns %v, want ErrNotHeld", err)
		}
	})
}

func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default", lock.WithoutRenewal())
		held := mustHold(t, client)
		pass(10 * time.Second)
		for _, step := range []struct{ asked, want time.Duration }{{0, 30 * time.Second}, {time.Minute, time.Minute}, {0, time.Minute}, {time.Second, time.Second}} {
			if err := held.Renew(t.Context(), step.asked); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(held.Deadline()); left != step.want {
				t.Errorf("renewed for %s: %s left, want %s", step.asked, left, step.want)
			}
		}
		pass(time.Second)
		synctest.Wait()
		if err := held.Err(); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("after the shorter ttl: got %v, want ErrExpired", err)
		}
		_ = held.Release(t.Context())
	})
}

func TestUnansweredRenewalForAShorterTime(t *testing.T) {
	tests := map[string]struct {
		answer error
		want   time.Duration
	}{
		"no answer: it may be in force":   {answer: lock.ErrUnavailable, want: time.Second},
		"refused: the former ttl remains": {answer: lock.ErrInvalid, want: 30 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
				service.SetHooks(before(locktest.Failing(locktest.Renew, test.answer)))
				if err := held.Renew(t.Context(), time.Second); !errors.Is(err, test.answer) {
					t.Errorf("got %v, want %v", err, test.answer)
				}
				if left := time.Until(held.Deadline()); left != test.want {
					t.Errorf("%s left, want %s", left, test.want)
				}
				_ = held.Release(t.Context())
			})
		})
	}
}

// Two holders share an owner token.
func TestRenewalOfALaterGrantOfTheSameOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(unwatched)
		held := mustHold(t, lock.NewClient(service, "default", lock.WithOwner("shared")))
		pass(time.Second)
		takeOver(t, service, "shared")
		if err := held.Renew(t.Context(), 0); !errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrForceReleased) {
			t.Errorf("got %v, want ErrNotHeld, and no word of force", err)
		}
		_ = held.Release(t.Context())
		if _, err := service.Get(t.Context(), "default", key); err != nil {
			t.Errorf("the later grant: %v", err)
		}
	})
}

func TestHeldDoesNotPrintItsOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithOwner("secret")))
		texts := fmt.Sprintf("%v %+v %s", held, held, held)
		forceRelease(t, service)
		<-held.Done()
		texts += held.Err().Error() + held.Release(t.Context()).Error()
		if strings.Contains(texts, "secret") || !strings.Contains(texts, "lock:billing:report") {
			t.Errorf("%s; want the key and not the owner", texts)
		}
	})
}

// A release that has certainly done nothing is not what ended the lock.
func TestAReleaseThatWasRefusedHasNotReleasedTheLock(t *testing.T) {
	for name, refusal := range map[string]error{
		"before it began": fmt.Errorf("%w; %w", lock.ErrUnavailable, lock.ErrNothingDone),
		"for good":        lock.ErrForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				held := mustHold(t, lock.NewClient(service, "default"))
				service.SetHooks(before(locktest.Failing(locktest.Release, refusal)))
				if err := held.Release(t.Context()); !errors.Is(err, refusal) && !errors.Is(err, lock.ErrNothingDone) {
					t.Errorf("got %v", err)
				}
				service.SetHooks(locktest.Hooks{})
				if err := service.ForceRelease(t.Context(), "default", key, "it hangs"); err != nil {
					t.Fatal(err)
				}
				if err := held.Release(t.Context()); !errors.Is(err, lock.ErrForceReleased) {
					t.Errorf("got %v, want ErrForceReleased", err)
				}
			})
		})
	}
}
