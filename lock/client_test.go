package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func TestAcquireSendsItsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default", lock.WithTTL(time.Minute), lock.WithReason("default"))
		held := mustHold(t, client, lock.WithFunction("payments.charge"), lock.WithReason("monthly close"), lock.WithWait(time.Second))
		defer mustRelease(t, held)

		request := acquisitions(service)[0]
		if len(held.Owner()) != 36 {
			t.Errorf("owner %q is not the new UUID of the service", held.Owner())
		}
		want := lock.Request{Wait: time.Second}
		want.Key, want.Scope, want.Function, want.TTL, want.Reason = "billing:report", v1alpha1.ScopeFunction, "payments.charge", time.Minute, "monthly close"
		if diff := cmp.Diff(want, request); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		if want := v1alpha1.FullKey("lock:payments.charge:billing:report"); held.Key() != want {
			t.Errorf("key %q, want %q", held.Key(), want)
		}
		if held.FencingToken() != 1 {
			t.Errorf("fencing token %d, want the revision of the grant, 1", held.FencingToken())
		}
	})
}

func TestAcquireDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		defer mustRelease(t, mustHold(t, lock.NewClient(service, "default")))
		if request := acquisitions(service)[0]; request.TTL != 30*time.Second || request.Wait != lock.WaitForever {
			t.Errorf("ttl %s, wait %s; want 30s and for ever", request.TTL, request.Wait)
		}
	})
}

func TestTryAcquireDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default", lock.WithWait(time.Hour))
		defer mustRelease(t, mustHold(t, client))
		began := time.Now()
		_, err := client.TryAcquire(t.Context(), "billing:report")
		if holder, ok := errors.AsType[*lock.HeldError](err); !ok || holder.Holder != "alice" || time.Since(began) != 0 {
			t.Errorf("after %s: %v; want who holds it, at once", time.Since(began), err)
		}
		if got := requests(service); !cmp.Equal(got, []locktest.Verb{locktest.Acquire, locktest.Acquire}) {
			t.Errorf("requests %v, want one for each call", got)
		}
	})
}

func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		first := mustHold(t, client)
		if _, err := client.Acquire(t.Context(), "billing:report", lock.WithWait(time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("got %v, want ErrTimeout", err)
		}
		time.AfterFunc(time.Second, func() { mustRelease(t, first) })
		defer mustRelease(t, mustHold(t, client))
	})
}

// TestDeadlineAfterAWait shows that a deadline counts from the request, and that a wait
// does not use up the time of the caller.
func TestDeadlineAfterAWait(t *testing.T) {
	tests := map[string]struct {
		wait        time.Duration
		wantRenewed bool
	}{
		"after a third of the ttl the request is a good start": {wait: 10 * time.Second},
		"after more the lock is renewed before it is returned": {wait: 10*time.Second + 1, wantRenewed: true},
		"also if the wait was longer than the ttl":             {wait: time.Minute, wantRenewed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default", lock.WithoutRenewal())
				first := mustHold(t, client, lock.WithTTL(time.Hour))
				time.AfterFunc(test.wait, func() { mustRelease(t, first) })
				began := time.Now()
				held := mustHold(t, client)
				defer mustRelease(t, held)
				want := began
				if test.wantRenewed {
					want = time.Now()
				}
				if got := held.Deadline(); !got.Equal(want.Add(30 * time.Second)) {
					t.Errorf("deadline %s after the call, want %s", got.Sub(began), want.Add(30*time.Second).Sub(began))
				}
				synctest.Wait()
				if err := held.Err(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAcquireFailsWithTheRenewalAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default", lock.WithoutRenewal())
		first := mustHold(t, client, lock.WithTTL(time.Hour))
		service.SetHooks(before(locktest.Failing(locktest.Renew, lock.ErrUnavailable)))
		time.AfterFunc(time.Minute, func() { mustRelease(t, first) })
		if _, err := client.Acquire(t.Context(), "billing:report"); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if _, err := service.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("get returns %v; want the lock released", err)
		}
	})
}

func TestAcquireWhoseContextEndsInTheRenewalAfterAWait(t *testing.T) {
	for name, isReleaseAnswered := range map[string]bool{"the service answers the release": true, "the service answers nothing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default")
				first := mustHold(t, client, lock.WithTTL(time.Hour), lock.WithoutRenewal())
				var proofs []lock.Proof
				service.SetHooks(before(func(ctx context.Context, call locktest.Call) error {
					isOfFirst := call.Proof.Owner == first.Owner()
					if call.Verb == locktest.Release && !isOfFirst {
						proofs = append(proofs, call.Proof)
					}
					if call.Verb != locktest.Renew && (call.Verb != locktest.Release || isOfFirst || isReleaseAnswered) {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}))
				time.AfterFunc(20*time.Second, func() { mustRelease(t, first) })
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				_, err := client.Acquire(ctx, "billing:report", lock.WithOwner("chosen"))
				interrupted, ok := errors.AsType[*lock.InterruptedError](err)
				if !ok || interrupted.Key != key || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want an InterruptedError", err)
				}
				if took := time.Since(began); took > 26*time.Second {
					t.Errorf("returned after %s", took)
				}
				if isFree := len(service.All()) == 0; isFree != isReleaseAnswered {
					t.Errorf("the lock is free: %t", isFree)
				}
				if len(proofs) != 1 || proofs[0].FencingToken == 0 {
					t.Errorf("released by %+v, want this grant alone", proofs)
				}
			})
		})
	}
}

func TestDoubleLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		held := mustHold(t, client)
		other, err := client.Acquire(held.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		inner, cancel := context.WithCancel(other.Context())
		defer cancel()
		requests(service)
		for _, try := range []func(context.Context, string, ...lock.Option) (*lock.Held, error){client.Acquire, client.TryAcquire} {
			_, err := try(inner, "billing:report")
			if !errors.Is(err, lock.ErrDoubleLock) || !strings.Contains(err.Error(), "lock:billing:report") {
				t.Errorf("got %v, want ErrDoubleLock naming the key", err)
			}
		}
		if _, err := client.Acquire(inner, "report", lock.WithFunction("billing")); !errors.Is(err, lock.ErrDoubleLock) {
			t.Errorf("the same full key in other parts: got %v, want ErrDoubleLock", err)
		}
		if got := requests(service); len(got) != 0 {
			t.Errorf("requests %v, want none", got)
		}

		elsewhere, err := lock.NewClient(newBackend(), "default").Acquire(inner, "billing:report")
		if err != nil {
			t.Fatalf("the same key of another service: %v", err)
		}
		mustRelease(t, elsewhere)
		mustRelease(t, held)
		again, err := client.Acquire(context.WithoutCancel(inner), "billing:report")
		if err != nil {
			t.Fatalf("after the release: %v", err)
		}
		mustRelease(t, again)
		mustRelease(t, other)
	})
}

func TestTryAcquireRefusesAWait(t *testing.T) {
	service := newBackend()
	client := lock.NewClient(service, "default", lock.WithWait(time.Hour))
	_, err := client.TryAcquire(t.Context(), "billing:report", lock.WithWait(time.Second))
	if !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if sent := acquisitions(service); len(sent) > 0 {
		t.Errorf("sent %v", sent)
	}
}

// TestAContextThatBoundsTheWaitAlone has the caller end its context once it has the lock.
func TestAContextThatBoundsTheWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		held, err := client.Acquire(waiting, "billing:report")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		work, stop := held.Bind(t.Context())
		defer stop()
		pass(time.Minute)
		if err := errors.Join(held.Err(), work.Err()); err != nil {
			t.Error(err)
		}
		mustRelease(t, held)
	})
}
