package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/machine"
)

// mustEnd returns when the lock has ended.
func mustEnd(t *testing.T, held *lock.Held) {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(time.Minute):
		t.Error("the lock has not ended within a minute")
	}
}

func TestASuspendedMachineDoesNotBelieveInItsLock(t *testing.T) {
	looks := map[string]func(context.Context, *lock.Held) error{
		"err":     func(_ context.Context, held *lock.Held) error { return held.Err() },
		"context": func(_ context.Context, held *lock.Held) error { return context.Cause(held.Context()) }, // that of the lock
		"bind": func(ctx context.Context, held *lock.Held) error {
			bound, cancel := held.Bind(ctx)
			defer cancel()
			return context.Cause(bound)
		},
		"renew":   func(ctx context.Context, held *lock.Held) error { return held.Renew(ctx, 0) },
		"release": func(ctx context.Context, held *lock.Held) error { return held.Release(ctx) },
	}
	for name, look := range looks {
		for _, options := range [][]lock.Option{nil, {lock.WithoutRenewal()}} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					service, clock := newBackend(), machine.NewClock()
					held := mustHold(t, lock.NewClient(service, "default", append(options, lock.WithClock(clock))...))
					pass(5 * time.Second)
					requests(service)
					clock.Suspend(24 * time.Second) // 29 of 30 s, by a clock that may be a second behind
					if err := look(t.Context(), held); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotHeld) {
						t.Errorf("got %v, want ErrUnavailable", err)
					}
					mustEnd(t, held)
					_ = held.Release(t.Context())
					// The service may hold the lock still; a renewal must not bring it back.
					if diff := cmp.Diff([]locktest.Verb{locktest.Release}, requests(service)); diff != "" {
						t.Errorf("requests (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

func TestDoneIsClosedSoonAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := machine.NewClock()
		held := mustHold(t, lock.NewClient(newBackend(), "default", lock.WithClock(clock), lock.WithTTL(time.Hour)))
		clock.Suspend(time.Hour)
		began := time.Now()
		mustEnd(t, held)
		if took := time.Since(began); took > time.Second {
			t.Errorf("closed after %s", took)
		}
		if err := context.Cause(held.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("cause %v", err)
		}
		_ = held.Release(t.Context())
	})
}

func TestAShortSuspendIsFollowedByARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, clock := newBackend(), machine.NewClock()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock)))
		for range 3 {
			requests(service)
			clock.Suspend(15 * time.Second)
			if err := held.Err(); err != nil {
				t.Fatalf("the lock has not ended: %v", err)
			}
			pass(time.Second + time.Millisecond)
			if diff := cmp.Diff([]locktest.Verb{locktest.Renew}, requests(service)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			pass(7 * time.Second)
			if made := requests(service); len(made) > 0 {
				t.Errorf("requests %v, though the clock has not jumped again", made)
			}
		}
		mustRelease(t, held)
	})
}

// The renewals that fail after a suspend do not make the lock last by the clock that stood still.
func TestAShortSuspendDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, clock := newBackend(), machine.NewClock()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock)))
		service.SetUnavailable(true)
		clock.Suspend(20 * time.Second)
		began := time.Now()
		mustEnd(t, held)
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("ended %s after a suspend of 20 s, with a ttl of 30 s", took)
		}
		if err := held.Err(); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		_ = held.Release(t.Context())
	})
}

func TestASuspendDuringARenewal(t *testing.T) {
	for name, hooks := range map[string]func(locktest.Hook) locktest.Hooks{"before it is carried out": before, "before its answer arrives": after} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service, clock := newBackend(), machine.NewClock()
				service.SetHooks(hooks(func(_ context.Context, call locktest.Call) error {
					if call.Verb == locktest.Renew {
						clock.Suspend(time.Minute)
					}
					return nil
				}))
				held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock), lock.WithoutRenewal()))
				_ = held.Renew(t.Context(), 0)
				if err := held.Err(); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v, though the answer may be a minute old", err)
				}
				_ = held.Release(t.Context())
			})
		})
	}
}

// How old the grant is cannot be told, so it is renewed before the caller gets it.
func TestASuspendDuringAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, clock := newBackend(), machine.NewClock()
		service.SetHooks(after(func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire {
				clock.Suspend(5 * time.Second)
			}
			return nil
		}))
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock)))
		if diff := cmp.Diff([]locktest.Verb{locktest.Acquire, locktest.Renew}, requests(service)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		mustRelease(t, held)
		service.SetHooks(after(func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire {
				clock.Suspend(time.Hour)
				return service.Expire("default", key)
			}
			return nil
		}))
		if _, err := lock.NewClient(service, "default", lock.WithClock(clock)).Acquire(t.Context(), "billing:report"); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v for a grant that expired while the machine was suspended", err)
		}
	})
}

// A wall clock that is set back changes nothing: the monotonic clock has not stood still.
func TestAWallClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, clock := newBackend(), machine.NewClock()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock)))
		requests(service)
		clock.Suspend(-time.Hour)
		pass(8 * time.Second)
		if made := requests(service); held.Err() != nil || len(made) > 0 {
			t.Errorf("%v, requests %v", held.Err(), made)
		}
		pass(time.Hour)
		mustRelease(t, held)

		brief := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock), lock.WithoutRenewal()))
		clock.Suspend(-time.Hour)
		pass(30 * time.Second)
		if err := brief.Err(); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v after the ttl", err)
		}
		_ = brief.Release(t.Context())
	})
}

// What the watch shows after a suspend is not taken for a forced release.
func TestALockThatExpiredDuringASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := watched{newBackend(), make(chan lock.Change)}
		clock := machine.NewClock()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithClock(clock)))
		stored, err := service.Get(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		clock.Suspend(time.Hour)
		service.changes <- lock.Change{Lock: stored, IsGone: true}
		mustEnd(t, held)
		if err := held.Err(); errors.Is(err, lock.ErrForceReleased) || !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		_ = held.Release(t.Context())
	})
}
