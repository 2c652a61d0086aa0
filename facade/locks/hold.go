package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// MinHoldTTL is the shortest ttl of a lock that a connection holds: within it, the service finds out that the machine of the
// client has gone.
const MinHoldTTL = 5 * time.Second

const (
	// aliveParts is how often in a ttl a connection that holds a lock is written to.
	aliveParts = 4
	// confirmAfter is how long the watch may be behind the grant before a renewal finds out what has become of it.
	confirmAfter = 200 * time.Millisecond
)

// Connection is the client's end of a [Hold]. An error says that it can be told nothing any more.
type Connection interface {
	// Begin tells that the lock is held.
	Begin() error
	// Renewed tells that the lock was renewed.
	Renewed(*v1alpha1.Lock) error
	// Alive shows that the service holds the lock still.
	Alive() error
}

// Hold renews a lock as long as a connection of its caller lives. Whoever has renewed a lock last holds it: each renewal, and the
// release, is for the version that this hold has written last. It is not safe for concurrent use.
type Hold struct {
	locks  *Locks
	caller *access.Caller
	timers clock.WithTicker
	// latest is the lock as this hold has acquired or renewed it last, or as a write that was no renewal has left it since.
	latest *v1alpha1.Lock
	// deadline is when the lock ends unless it is renewed: not before the service ends it, which counts from a later time.
	deadline time.Time
	failures int
}

// Hold returns the hold of a lock that the caller was granted or has renewed by a request which was sent at that time of the timers.
func (l *Locks) Hold(caller *access.Caller, held *v1alpha1.Lock, sent time.Time, timers clock.WithTicker) *Hold {
	h := &Hold{locks: l, caller: caller, timers: timers}
	h.record(renewal{stored: held, sent: sent})
	return h
}

// renewal is how a renewal has ended.
type renewal struct {
	stored *v1alpha1.Lock
	sent   time.Time
	err    error
}

func (h *Hold) record(done renewal) {
	if done.err != nil {
		h.failures++
		return
	}
	h.latest, h.deadline, h.failures = done.stored, done.sent.Add(done.stored.Spec.TTL.Duration), 0
}

// Run renews the lock and tells the connection until ctx ends, or the connection tells an error. It returns that, or an error that
// matches [lock.ErrNotHeld] if the lock has ended, or another call has renewed it and goes on with it.
func (h *Hold) Run(ctx context.Context, connection Connection) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan renewal, 1)
	isRenewing := false
	defer func() {
		if isRenewing { // The release needs to know the version that it writes.
			h.record(<-done)
		}
	}()
	changes, err := h.locks.backend.Watch(ctx, h.caller.Namespace, h.latest.Spec.FullKey())
	if err != nil {
		changes = nil // The next renewal shows the end of the lock.
	}
	isShown := false
	due, end := h.timers.NewTimer(h.untilDue()), h.timers.NewTimer(h.left())
	defer due.Stop()
	defer end.Stop()
	alive := h.timers.NewTicker(h.latest.Spec.TTL.Duration / aliveParts)
	defer alive.Stop()
	if err := connection.Begin(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C():
			return fmt.Errorf("the lock could not be renewed in time: %w", lock.ErrExpired)
		case <-alive.C():
			if err := connection.Alive(); err != nil {
				return err
			}
		case <-due.C():
			if !isRenewing {
				isRenewing = true
				go func(latest *v1alpha1.Lock) { done <- h.renew(ctx, latest) }(h.latest)
			}
		case renewed := <-done:
			isRenewing = false
			h.record(renewed)
			if errors.Is(renewed.err, lock.ErrNotHeld) {
				return renewed.err
			}
			due.Reset(h.untilDue())
			if renewed.err == nil {
				end.Reset(h.left())
				if err := connection.Renewed(renewed.stored); err != nil {
					return err
				}
			}
		case change, isOpen := <-changes:
			switch {
			case !isOpen:
				changes = nil
			case change.Lock == nil:
				if !isShown { // The watch is behind the grant, or has begun after its end.
					due.Reset(min(confirmAfter, h.untilDue()))
				}
			case isOfGrant(change.Lock, h.latest) && !change.IsGone:
				isShown = true
			case isOfGrant(change.Lock, h.latest), rules.IsNewer(change.Lock.ResourceVersion, h.latest.ResourceVersion):
				return fmt.Errorf("the lock was released, or ended by force: %w", lock.ErrNotHeld)
			}
		}
	}
}

func isOfGrant(seen, granted *v1alpha1.Lock) bool {
	return seen.UID == granted.UID && seen.Spec.AcquireTime.Equal(granted.Spec.AcquireTime)
}

func (h *Hold) left() time.Duration { return h.deadline.Sub(h.timers.Now()) }

// untilDue returns how long until the next renewal: as late as leaves time for several attempts.
func (h *Hold) untilDue() time.Duration {
	ttl := h.latest.Spec.TTL.Duration
	if h.failures > 0 {
		return lock.RenewalPause(ttl, h.failures)
	}
	return h.left() - lock.RenewalPause(ttl, 0)
}

// renew makes one attempt, of which the end of the connection does not keep it from learning the outcome. The error matches
// [lock.ErrNotHeld] if the lock is not for this hold to renew any more.
func (h *Hold) renew(ctx context.Context, latest *v1alpha1.Lock) (done renewal) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.OperationTimeout)
	defer cancel()
	done.err = recovered(func() (err error) {
		if err := h.caller.Permit.Spend(ctx, limits.Upkeep); err != nil {
			return err
		}
		endTurn, err := h.locks.turn(ctx, h.caller, limits.Upkeep)
		if err != nil {
			return err
		}
		defer endTurn()
		return h.asWritten(ctx, latest, func(proof lock.Proof) (err error) {
			done.sent = h.timers.Now()
			done.stored, err = h.locks.backend.Renew(ctx, h.caller.Namespace, latest.Spec.FullKey(), proof, 0)
			return err
		})
	})
	return done
}

// asWritten changes the lock in the version that this hold has written, or in a later one that no renewal has made, such as one
// with another label. The error matches [lock.ErrNotHeld] if another call has renewed it.
func (h *Hold) asWritten(ctx context.Context, latest *v1alpha1.Lock, change func(lock.Proof) error) error {
	proof := h.caller.Proof(latest.Spec.Owner)
	proof.FencingToken, _ = latest.FencingToken()
	for proof.ResourceVersion = latest.ResourceVersion; ; {
		err := change(proof)
		switch {
		case errors.Is(err, lock.ErrOwnerMismatch):
			return fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
		case !errors.Is(err, lock.ErrStale):
			return err
		}
		current, err := h.locks.backend.Get(ctx, h.caller.Namespace, latest.Spec.FullKey())
		if err != nil {
			return err
		}
		if !isOfGrant(current, latest) || !current.Spec.RenewTime.Equal(latest.Spec.RenewTime) {
			return fmt.Errorf("another call has renewed the lock, and goes on with it: %w", lock.ErrNotHeld)
		}
		proof.ResourceVersion = current.ResourceVersion
	}
}

// Release ends the lock, unless another call has renewed it since. It goes on when the caller has gone. A failure is logged: the
// lock ends with its ttl then.
func (h *Hold) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.DefaultReleaseTimeout)
	defer cancel()
	err := h.asWritten(ctx, h.latest, func(proof lock.Proof) error {
		return h.locks.backend.Release(ctx, h.caller.Namespace, h.latest.Spec.FullKey(), proof)
	})
	if err != nil && !errors.Is(err, lock.ErrNotHeld) {
		h.locks.logger.Error(err, "Failed to release a lock after its connection", "namespace", h.caller.Namespace, "lock", string(h.latest.Spec.FullKey()))
	}
}
