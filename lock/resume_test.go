package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// proofOf returns what another process needs to take up the lock.
func proofOf(held *lock.Held) lock.Proof {
	return lock.Proof{Owner: held.Owner(), FencingToken: held.FencingToken()}
}

// mustDetach acquires the lock for thirty seconds and leaves it.
func mustDetach(t *testing.T, service lock.Backend, options ...lock.Option) lock.Proof {
	t.Helper()
	held := mustHold(t, lock.NewClient(service, "default"), options...)
	if err := held.Detach(); err != nil {
		t.Fatal(err)
	}
	return proofOf(held)
}

func mustResume(t *testing.T, client *lock.Client, proof lock.Proof, options ...lock.Option) *lock.Held {
	t.Helper()
	held, err := client.Resume(t.Context(), "billing:report", proof, options...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		proof := mustDetach(t, service)
		pass(20 * time.Second)
		service.Calls()
		held := mustResume(t, lock.NewClient(service, "default"), proof)
		want := locktest.Call{Verb: locktest.Renew, Namespace: "default", Key: key, Proof: proof}
		if diff := cmp.Diff(want, service.Calls()[0]); diff != "" {
			t.Errorf("the request (-want +got):\n%s", diff)
		}
		if left := time.Until(held.Deadline()); left != 30*time.Second || held.FencingToken() != proof.FencingToken || held.Key() != key {
			t.Errorf("%s left of grant %d", left, held.FencingToken())
		}
		pass(time.Hour)
		if err := held.Err(); err != nil {
			t.Errorf("it was not renewed: %v", err)
		}
		for _, call := range service.Calls() {
			if call.Verb == locktest.Renew && call.Proof != proof {
				t.Errorf("renewed with %+v", call.Proof)
			}
		}
		mustRelease(t, held)
		if len(service.All()) > 0 {
			t.Error("the lock was not released")
		}
	})
}

// The deadline counts from before the request, and the ttl is the one of the call or of the lock, not the
// client's.
func TestResumeForATime(t *testing.T) {
	for name, test := range map[string]struct {
		options []lock.Option
		want    time.Duration
	}{
		"that of the lock": {want: 50 * time.Second},
		"another one":      {options: []lock.Option{lock.WithTTL(time.Minute)}, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				proof := mustDetach(t, service, lock.WithTTL(50*time.Second))
				service.SetHooks(after(delaying(4*time.Second, locktest.Renew)))
				held := mustResume(t, lock.NewClient(service, "default", lock.WithTTL(time.Second), lock.WithoutRenewal()), proof, test.options...)
				if left := time.Until(held.Deadline()); left != test.want-4*time.Second {
					t.Errorf("%s left, want %s less the time of the request", left, test.want)
				}
				if info := held.Info(); info.TTL != test.want || info.FencingToken != proof.FencingToken || info.Holder != "alice" || strings.Contains(info.Owner, proof.Owner) {
					t.Errorf("told of the lock: %+v", info)
				}
				if err := held.Renew(t.Context(), 2*time.Minute); err != nil || held.Info().TTL != 2*time.Minute {
					t.Errorf("after a renewal: %v, told of the lock: %+v", err, held.Info())
				}
				mustRelease(t, held)
			})
		})
	}
}

func TestResumeThatFails(t *testing.T) {
	tests := map[string]struct {
		// happens changes the lock or the proof.
		happens func(t *testing.T, service *locktest.Backend, proof *lock.Proof)
		want    error
		isHeld  bool
	}{
		"it was released": {func(t *testing.T, service *locktest.Backend, _ *lock.Proof) {
			t.Helper()
			forceRelease(t, service)
		}, lock.ErrNotHeld, false},
		"it has expired": {func(*testing.T, *locktest.Backend, *lock.Proof) { pass(30 * time.Second) }, lock.ErrExpired, false},
		"it was taken over": {func(t *testing.T, service *locktest.Backend, _ *lock.Proof) {
			t.Helper()
			takeOver(t, service, "rival")
		}, lock.ErrOwnerMismatch, true},
		"its owner token has another grant": {func(t *testing.T, service *locktest.Backend, proof *lock.Proof) {
			t.Helper()
			takeOver(t, service, proof.Owner)
		}, lock.ErrNotHeld, true},
		"it has another owner token": {func(_ *testing.T, _ *locktest.Backend, proof *lock.Proof) { proof.Owner += "2" }, lock.ErrOwnerMismatch, true},
		"it has another version":     {func(_ *testing.T, _ *locktest.Backend, proof *lock.Proof) { proof.ResourceVersion = "none" }, lock.ErrStale, true},
		"there is no owner token":    {func(_ *testing.T, _ *locktest.Backend, proof *lock.Proof) { proof.Owner = "" }, lock.ErrInvalid, true},
		"the service is away": {func(_ *testing.T, service *locktest.Backend, _ *lock.Proof) {
			service.SetHooks(before(locktest.Failing(locktest.Renew, lock.ErrUnavailable)))
		}, lock.ErrUnavailable, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				proof := mustDetach(t, service, lock.WithTTL(30*time.Second))
				test.happens(t, service, &proof)
				before, err := service.Get(t.Context(), "default", key)
				if isHeld := err == nil; isHeld != test.isHeld {
					t.Fatal(err)
				}
				pass(time.Second)
				held, err := lock.NewClient(service, "default").Resume(t.Context(), "billing:report", proof)
				if held != nil || !errors.Is(err, test.want) || strings.Contains(err.Error(), proof.Owner) && proof.Owner != "" {
					t.Errorf("got %v, %v, want %v", held, err, test.want)
				}
				after, _ := service.Get(t.Context(), "default", key)
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("the lock has changed (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func TestResumeInAContextThatHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		held := mustHold(t, client)
		if _, err := client.Resume(held.Context(), "billing:report", proofOf(held)); !errors.Is(err, lock.ErrDoubleLock) {
			t.Errorf("got %v, want ErrDoubleLock", err)
		}
		mustRelease(t, held)
	})
}

// A lock that was resumed belongs to other calls, too.
func TestAFailedResumeDoesNotReleaseTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		proof := mustDetach(t, service)
		renewals := 0
		service.SetHooks(after(func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Renew {
				renewals++
				if renewals > 1 {
					return lock.ErrUnavailable
				}
				pass(15 * time.Second) // So long that the rest of the ttl is too short.
			}
			return nil
		}))
		if _, err := lock.NewClient(service, "default").Resume(t.Context(), "billing:report", proof); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if _, err := service.Get(t.Context(), "default", key); err != nil {
			t.Errorf("the lock has ended: %v", err)
		}
	})
}

// The owner token alone proves whichever grant it has; from then on the hold is of that one.
func TestResumeWithoutAFencingToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(unwatched)
		proof := mustDetach(t, service, lock.WithOwner("shared"))
		held := mustResume(t, lock.NewClient(service, "default", lock.WithoutRenewal()), lock.Proof{Owner: "shared"})
		if held.FencingToken() != proof.FencingToken {
			t.Errorf("grant %d, want %d", held.FencingToken(), proof.FencingToken)
		}
		takeOver(t, service, "shared")
		later := service.All()
		if err := held.Renew(t.Context(), time.Second); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if diff := cmp.Diff(later, service.All()); diff != "" {
			t.Errorf("the later grant (-want +got):\n%s", diff)
		}
	})
}

func TestALaterGrantOfASharedOwnerTokenIsNotReleased(t *testing.T) {
	for name, hold := range map[string]func(*testing.T, *locktest.Backend) *lock.Held{
		"by a hold that was resumed": func(t *testing.T, service *locktest.Backend) *lock.Held {
			t.Helper()
			proof := mustDetach(t, service, lock.WithOwner("shared"))
			return mustResume(t, lock.NewClient(service, "default", lock.WithoutRenewal()), proof)
		},
		"by the one that has chosen it": func(t *testing.T, service *locktest.Backend) *lock.Held {
			t.Helper()
			return mustHold(t, lock.NewClient(service, "default", lock.WithOwner("shared"), lock.WithoutRenewal()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				service.SetHooks(unwatched)
				held := hold(t, service)
				takeOver(t, service, "shared")
				if err := held.Release(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("got %v, want ErrNotHeld", err)
				}
				if _, err := service.Get(t.Context(), "default", key); err != nil {
					t.Errorf("the later grant: %v", err)
				}
			})
		})
	}
}

func TestDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		pass(time.Second)
		requests(service)
		if err := held.Detach(); err != nil {
			t.Fatal(err)
		}
		<-held.Done()
		if err := held.Err(); !errors.Is(err, lock.ErrDetached) || errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrDetached", err)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, lock.ErrDetached) {
			t.Errorf("cause %v, want ErrDetached", cause)
		}
		if err := held.Renew(t.Context(), 0); !errors.Is(err, lock.ErrDetached) {
			t.Errorf("renewal: got %v, want ErrDetached", err)
		}
		if err := held.Detach(); err != nil {
			t.Errorf("again: %v", err)
		}
		mustRelease(t, held)
		pass(28 * time.Second)
		if got := requests(service); len(got) > 0 {
			t.Errorf("requests %v after it, want none", got)
		}
		if _, err := service.Get(t.Context(), "default", key); err != nil {
			t.Errorf("before its ttl: %v", err)
		}
		pass(time.Second)
		if _, err := service.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("after its ttl: %v, want ErrNotHeld", err)
		}
	})
}

func TestDetachOfALockThatHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, service *locktest.Backend, held *lock.Held)
		want error
	}{
		"released": {func(t *testing.T, _ *locktest.Backend, held *lock.Held) {
			t.Helper()
			mustRelease(t, held)
		}, lock.ErrReleased},
		"lost": {func(t *testing.T, service *locktest.Backend, _ *lock.Held) {
			t.Helper()
			forceRelease(t, service)
			synctest.Wait()
		}, lock.ErrForceReleased},
		"expired": {func(*testing.T, *locktest.Backend, *lock.Held) { pass(time.Minute) }, lock.ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
				synctest.Wait()
				test.end(t, service, held)
				if err := held.Detach(); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}

// A lock that has expired before its process could notice is not left for others to take up.
func TestDetachReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &lateClock{}
		held := mustHold(t, lock.NewClient(newBackend(), "default", lock.WithClock(clock)))
		clock.late.Store(int64(30 * time.Second))
		if err := held.Detach(); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
	})
}

// A function that hands its lock on has not failed.
func TestDetachInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		var proof lock.Proof
		err := client.Do(t.Context(), "billing:report", func(_ context.Context, held *lock.Held) error {
			proof = proofOf(held)
			return held.Detach()
		})
		if err != nil {
			t.Error(err)
		}
		mustRelease(t, mustResume(t, client, proof))
	})
}

// A hold that others share cannot tell a forced release from one by them.
func TestAResumedLockIsReleasedElsewhere(t *testing.T) {
	for name, hooks := range map[string]locktest.Hooks{"as a watch shows": {}, "as a renewal shows": unwatched} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				service.SetHooks(hooks)
				client := lock.NewClient(service, "default")
				proof := mustDetach(t, service)
				held := mustResume(t, client, proof)
				synctest.Wait()
				if err := client.Release(t.Context(), "billing:report", proof); err != nil {
					t.Fatal(err)
				}
				<-held.Done()
				if err := held.Err(); !errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrForceReleased) || errors.Is(err, lock.ErrReleased) {
					t.Errorf("got %v, want ErrNotHeld alone", err)
				}
				if err := held.Release(t.Context()); !errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("release: got %v, want ErrNotHeld", err)
				}
			})
		})
	}
}

func TestReleaseByProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		proof := mustDetach(t, service)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, wrong := range map[string]lock.Proof{"another owner": {Owner: "rival"}, "another grant": {Owner: proof.Owner, FencingToken: proof.FencingToken + 1}} {
			if err := client.Release(ended, "billing:report", wrong); !errors.Is(err, lock.ErrOwnerMismatch) && !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := client.Release(ended, "billing:report", proof); err != nil {
			t.Error(err)
		}
		if err := client.Release(ended, "billing:report", proof); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("again: %v, want ErrNotHeld", err)
		}
	})
}
