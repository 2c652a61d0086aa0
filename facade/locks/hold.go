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
	"forrst.dev/lock-operator/lock/servertime"
)

// MinHoldTTL is the shortest ttl of a lock that a connection holds: within it, the service finds out that the machine of the
// client has gone.
const MinHoldTTL = 5 * time.Second

const (
	// aliveParts is how often in a ttl a connection that holds a lock is written to at least, and aliveEvery how often otherwise.
	aliveParts = 4
	aliveEvery = 15 * time.Second
	// renewalParts and minRenewal bound one attempt to renew: it takes one of so many parts of the ttl at most, so that several have
	// time in the third that is left.
	renewalParts = 10
	minRenewal   = time.Second
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

// Hold renews a lock as long as a connection of its caller lives. The lock records the connection that has taken it up last, and each
// renewal and the release are for that alone. It is not safe for concurrent use.
type Hold struct {
	locks  *Locks
	caller *access.Caller
	timers clock.WithTicker
	// latest is the lock as it was acquired or renewed last.
	latest *v1alpha1.Lock
	// deadline is when the lock ends unless it is renewed: not after the service ends it, which counts from a later time.
	deadline time.Time
	failures int
}

// Hold returns the hold of a lock that the connection which it records has been granted, or has renewed. Now is the clock of the locks.
func (l *Locks) Hold(caller *access.Caller, held *v1alpha1.Lock, now clock.WithTicker) *Hold {
	h := &Hold{locks: l, caller: caller, timers: servertime.Timers(now)}
	// The caller may have waited for longer than the ttl.
	age := max(0, now.Since(held.Spec.RenewTime.Time))
	h.record(renewal{stored: held, sent: h.timers.Now().Add(-age)})
	return h
}

// proof is that of the connection.
func (h *Hold) proof() lock.Proof {
	proof := h.caller.Proof(h.latest.Spec.Owner)
	proof.FencingToken, _ = h.latest.FencingToken()
	proof.Connection = rules.ConnectionOf(h.latest)
	return proof
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
// matches [lock.ErrNotHeld] or [lock.ErrOwnerMismatch] if the lock has ended, or another connection has taken it up.
func (h *Hold) Run(ctx context.Context, connection Connection) error {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan renewal, 1)
	isRenewing := false
	defer func() {
		stop()
		if isRenewing {
			<-done
		}
	}()
	changes, err := h.locks.backend.Watch(ctx, h.caller.Namespace, h.latest.Spec.FullKey())
	if err != nil {
		changes = nil // The next renewal shows the end of the lock.
	}
	var failure error
	isShown := false
	due, end := h.timers.NewTimer(h.untilDue()), h.timers.NewTimer(h.left())
	defer due.Stop()
	defer end.Stop()
	alive := h.timers.NewTicker(min(aliveEvery, h.latest.Spec.TTL.Duration/aliveParts))
	defer alive.Stop()
	if err := connection.Begin(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C():
			h.locks.logger.Error(failure, "A lock could not be renewed for its connection", "namespace", h.caller.Namespace, "lock", string(h.latest.Spec.FullKey()))
			return fmt.Errorf("the lock could not be renewed in time: %w", lock.ErrExpired)
		case <-alive.C():
			if err := connection.Alive(); err != nil {
				return err
			}
		case <-due.C():
			if !isRenewing {
				isRenewing = true
				go func(key v1alpha1.FullKey, proof lock.Proof) { done <- h.renew(ctx, key, proof) }(h.latest.Spec.FullKey(), h.proof())
			}
		case renewed := <-done:
			isRenewing = false
			h.record(renewed)
			failure = renewed.err
			if isOver(renewed.err) {
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
			seen := change.Lock
			isEnd := seen != nil && change.IsGone && isOfGrant(seen, h.latest)
			switch {
			case !isOpen:
				changes = nil
			case seen == nil && !isShown: // The watch is behind the grant, or has begun after its end.
				due.Reset(min(confirmAfter, h.untilDue()))
			case seen == nil, !isEnd && rules.IsNewer(h.latest.ResourceVersion, seen.ResourceVersion): // It is behind.
			case !isEnd && isOfGrant(seen, h.latest) && rules.ConnectionOf(seen) == rules.ConnectionOf(h.latest):
				if !isShown && !isRenewing && h.failures == 0 {
					due.Reset(h.untilDue())
				}
				isShown = true
			default:
				return fmt.Errorf("the lock was released, broken, or taken up by another connection: %w", lock.ErrNotHeld)
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

// renew makes one attempt.
func (h *Hold) renew(ctx context.Context, key v1alpha1.FullKey, proof lock.Proof) (done renewal) {
	ctx, cancel := context.WithTimeout(ctx, min(lock.OperationTimeout, max(minRenewal, h.latest.Spec.TTL.Duration/renewalParts)))
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
		done.sent = h.timers.Now()
		done.stored, err = h.locks.backend.Renew(ctx, h.caller.Namespace, key, proof, 0)
		return err
	})
	return done
}

// Release ends the lock, unless another connection has taken it up. It goes on when the caller has gone, and as long as the API
// server does not answer; then the lock ends with its ttl.
func (h *Hold) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.DefaultReleaseTimeout)
	defer cancel()
	key := h.latest.Spec.FullKey()
	for failures := 1; ; failures++ {
		err := recovered(func() error {
			endTurn, err := h.locks.turn(ctx, h.caller, limits.Upkeep)
			if err != nil {
				return err
			}
			defer endTurn()
			return h.locks.backend.Release(ctx, h.caller.Namespace, key, h.proof())
		})
		if err == nil || isOver(err) {
			return
		}
		if ctx.Err() == nil && !errors.Is(err, lock.ErrRefused) {
			select {
			case <-ctx.Done():
			case <-h.timers.After(lock.RenewalPause(h.latest.Spec.TTL.Duration, failures)):
				continue
			}
		}
		h.locks.logger.Error(err, "Failed to release a lock after its connection", "namespace", h.caller.Namespace, "lock", string(key))
		return
	}
}
