package locks_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// disturbed are locks whose renewals and releases fail as told.
type disturbed struct {
	*locktest.Backend

	// renew and release are called before the backend's, if they are set.
	renew, release func() error
	// isBlind says that they cannot be watched. Otherwise changes are what a watch tells, if that is set.
	isBlind bool
	changes chan lock.Change
	// late is called between the grant and the hold, if it is set.
	late func(*disturbed)
	// renewals counts the requests.
	renewals atomic.Int32
}

// Watch implements [lock.Backend].
func (d *disturbed) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	if d.isBlind {
		return nil, errors.ErrUnsupported
	}
	if d.changes != nil {
		return d.changes, nil
	}
	return d.Backend.Watch(ctx, namespace, key)
}

// Renew implements [lock.Backend].
func (d *disturbed) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	d.renewals.Add(1)
	if d.renew != nil {
		if err := d.renew(); err != nil {
			return nil, err
		}
	}
	return d.Backend.Renew(ctx, namespace, key, proof, ttl)
}

// Release implements [lock.Backend].
func (d *disturbed) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	if d.release != nil {
		if err := d.release(); err != nil {
			return err
		}
	}
	return d.Backend.Release(ctx, namespace, key, proof)
}

// client is a connection that counts what it is told.
type client struct{ renewed, alive atomic.Int32 }

// Begin implements [locks.Connection].
func (c *client) Begin() error { return nil }

// Renewed implements [locks.Connection].
func (c *client) Renewed(*v1alpha1.Lock) error {
	c.renewed.Add(1)
	return nil
}

// Alive implements [locks.Connection].
func (c *client) Alive() error {
	c.alive.Add(1)
	return nil
}

// holding is a hold that runs.
type holding struct {
	*locks.Hold
	client

	t       *testing.T
	backend *disturbed
	end     context.CancelFunc
	ended   chan error
}

const heldKey = v1alpha1.FullKey("lock:report")

// beginHold holds a lock of a ttl of a minute, in a bubble.
func beginHold(t *testing.T, backend *disturbed) *holding {
	t.Helper()
	backend.Backend = locktest.New()
	h := &holding{t: t, backend: backend, ended: make(chan error, 1)}
	all, err := locks.New(locks.Options{Backend: h.backend, Limits: rules.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := h.backend.Acquire(t.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: "report", Owner: "o", Holder: "system:anonymous", TTL: time.Minute, Connection: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	if backend.late != nil {
		backend.late(backend)
	}
	caller := access.Caller{User: &user.DefaultInfo{Name: "system:anonymous"}, Namespace: "payments"}
	h.Hold = all.Hold(&caller, granted, clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	h.end = cancel
	go func() { h.ended <- h.Run(ctx, &h.client) }()
	return h
}

// pass lets time pass.
func pass(by time.Duration) {
	<-time.After(by)
	synctest.Wait()
}

func (h *holding) isHeld() bool {
	_, err := h.backend.Backend.Get(h.t.Context(), "payments", heldKey)
	return err == nil
}

// stop ends the connection and releases the lock.
func (h *holding) stop() {
	h.t.Helper()
	h.end()
	if err := <-h.ended; !errors.Is(err, context.Canceled) {
		h.t.Error(err)
	}
	h.Release(h.t.Context())
}

func TestAHoldRenewsAsLateAsLeavesTimeForSeveralTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHold(t, &disturbed{})
		pass(37 * time.Second)
		if h.backend.renewals.Load() != 0 || h.alive.Load() != 2 {
			t.Errorf("%d renewals, %d signs of life", h.backend.renewals.Load(), h.alive.Load())
		}
		pass(time.Hour)
		if !h.isHeld() || h.renewed.Load() != h.backend.renewals.Load() || h.renewed.Load() > 97 {
			t.Errorf("held %t, %d renewals, %d told", h.isHeld(), h.backend.renewals.Load(), h.renewed.Load())
		}
		h.stop()
		if h.isHeld() {
			t.Error("the lock was not released")
		}
	})
}

func TestAHoldLeavesALockThatAnotherConnectionHasTakenUp(t *testing.T) {
	takeUp := func(h *holding) {
		if _, err := h.backend.Backend.Renew(t.Context(), "payments", heldKey, lock.Proof{Owner: "o", NextConnection: "second"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := beginHold(t, &disturbed{})
			pass(10 * time.Second)
			takeUp(h)
			synctest.Wait()
			select {
			case err := <-h.ended:
				if !errors.Is(err, lock.ErrNotHeld) {
					t.Error(err)
				}
			default:
				t.Error("the hold goes on")
				h.end()
			}
			h.Release(t.Context())
			if !h.isHeld() {
				t.Error("the lock was released")
			}
		})
	})
	t.Run("after the end of its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := beginHold(t, &disturbed{})
			pass(10 * time.Second)
			h.end()
			if err := <-h.ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			takeUp(h)
			h.Release(t.Context())
			if !h.isHeld() {
				t.Error("the lock was released")
			}
		})
	})
}

// Without a watch, the next renewal shows it.
func TestAHoldWithoutAWatchLeavesALockAtItsNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHold(t, &disturbed{isBlind: true})
		began := time.Now()
		pass(10 * time.Second)
		if _, err := h.backend.Backend.Renew(t.Context(), "payments", heldKey, lock.Proof{Owner: "o", NextConnection: "second"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := <-h.ended; !errors.Is(err, lock.ErrNotHeld) || !h.isHeld() || time.Since(began) > 45*time.Second {
			t.Errorf("held %t after %s: %v", h.isHeld(), time.Since(began), err)
		}
	})
}

// A renewal by the holder itself takes the lock from no connection.
func TestAHoldGoesOnAfterARenewalWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHold(t, &disturbed{})
		pass(time.Second)
		if _, err := h.backend.Backend.Renew(t.Context(), "payments", heldKey, lock.Proof{Owner: "o"}, 0); err != nil {
			t.Fatal(err)
		}
		pass(45 * time.Second)
		if h.renewed.Load() != 1 {
			t.Errorf("%d renewals", h.renewed.Load())
		}
		h.stop()
		if h.isHeld() {
			t.Error("the lock was not released")
		}
	})
}

// Its outcome is not known, so it may have been made.
func TestAHoldGoesOnAfterARenewalThatWentUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unanswered := &disturbed{}
		unanswered.renew = func() error {
			if unanswered.renewals.Load() > 1 {
				return nil
			}
			if _, err := unanswered.Backend.Renew(t.Context(), "payments", heldKey, lock.Proof{Owner: "o", Connection: "first"}, 0); err != nil {
				t.Error(err)
			}
			return lock.ErrUnavailable
		}
		h := beginHold(t, unanswered)
		pass(45 * time.Second)
		if h.renewed.Load() != 1 {
			t.Errorf("%d renewals", h.renewed.Load())
		}
		h.stop()
	})
}

func TestAHoldReleasesItsLockWhenTheServiceAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		h := beginHold(t, &disturbed{release: func() error {
			if failures++; failures <= 3 {
				return lock.ErrUnavailable
			}
			return nil
		}})
		h.stop()
		if h.isHeld() {
			t.Error("the lock was not released")
		}
	})
}

func TestAHoldTriesUntilItsLockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := beginHold(t, &disturbed{
			renew: func() error { return lock.ErrUnavailable },
			late:  func(*disturbed) { pass(10 * time.Second) }, // The grant was to a caller that had to wait.
		})
		if err := <-h.ended; !errors.Is(err, lock.ErrExpired) || time.Since(began) != time.Minute || h.backend.renewals.Load() < 4 {
			t.Errorf("%d renewals in %s: %v", h.backend.renewals.Load(), time.Since(began), err)
		}
	})
}

func TestAHoldEndsBesideARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		h := beginHold(t, &disturbed{renew: func() error {
			close(begun)
			<-goOn
			return nil
		}})
		<-begun
		h.end()
		synctest.Wait()
		close(goOn)
		h.stop()
		if h.isHeld() {
			t.Error("the lock was not released")
		}
	})
}

func TestAHoldSeesTheEndOfItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHold(t, &disturbed{})
		pass(time.Second)
		if err := h.backend.ForceRelease(t.Context(), "payments", heldKey, "stuck"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-h.ended; !errors.Is(err, lock.ErrNotHeld) || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestAHoldSeesThatItsLockHasEndedBeforeItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHold(t, &disturbed{late: func(d *disturbed) {
			if err := d.ForceRelease(t.Context(), "payments", heldKey, "stuck"); err != nil {
				t.Error(err)
			}
		}})
		began := time.Now()
		if err := <-h.ended; !errors.Is(err, lock.ErrNotHeld) || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestAWatchThatIsBehindForAMomentCostsNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &disturbed{changes: make(chan lock.Change)}
		h := beginHold(t, behind)
		behind.changes <- lock.Change{IsGone: true}
		shown, err := behind.Backend.Get(t.Context(), "payments", heldKey)
		if err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		behind.changes <- lock.Change{Lock: shown}
		pass(30 * time.Second)
		if h.backend.renewals.Load() != 0 {
			t.Errorf("%d renewals", h.backend.renewals.Load())
		}
		h.stop()
	})
}
