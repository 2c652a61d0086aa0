package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// Renew replaces the remaining time of a lock by a whole ttl. A ttl of zero means the one that the
// lock has. Through the engine that acquired the lock it is one write.
//
// The error matches [lock.ErrNotHeld], [lock.ErrExpired], [lock.ErrOwnerMismatch], [lock.ErrStale],
// [lock.ErrInvalid], [lock.ErrRefused] or [lock.ErrUnavailable], or is that of ctx.
func (e *Engine) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	description := fmt.Sprintf("renew %s in namespace %s", key, namespace)
	if !e.isValidated {
		if err := e.limits.ValidateTTL(ttl); err != nil {
			return nil, fmt.Errorf("%s: %w", description, err)
		}
	}
	operation, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	attempt := renewalAttempt{
		engine:  e,
		objects: e.objects(namespace),
		name:    types.NamespacedName{Namespace: namespace, Name: key.ObjectName()},
		proof:   narrowing{given: proof},
		ttl:     ttl,
	}
	stored, err := attempt.run(operation)
	if err != nil {
		if callerErr := ctx.Err(); callerErr != nil {
			return nil, callerErr
		}
		return nil, e.requestError(description, err, proof.Owner)
	}
	e.lockCache.put(stored, e.clock.Now())
	e.audit.Record(audit.Prolonged(e.via, actor(ctx, proof), attempt.before, stored))
	if rules.Expired(stored, e.clock.Now()) {
		// Not as invalid, whatever the ttl: of such a renewal its holder takes it that the lock is as before.
		return nil, fmt.Errorf("%s: the renewal expired before it was answered: %w", description, lock.ErrExpired)
	}
	return stored, nil
}

type renewalAttempt struct {
	engine  *Engine
	objects Objects
	name    types.NamespacedName
	proof   narrowing
	ttl     time.Duration
	// began is the time of the first write, and stamped that of the last.
	began, stamped servertime.Reading
	// before is the lock that the first write renews, and latest that of the last.
	before, latest *v1alpha1.Lock
	// read is the object that the attempt has read and sent a renewal of, or nil.
	read *v1alpha1.Lock
	// isRestamped says that the lock was renewed and is being renewed again.
	isRestamped bool
}

func (r *renewalAttempt) run(ctx context.Context) (*v1alpha1.Lock, error) {
	backoff := newBackoff()
	desired, err := r.firstDesired(ctx)
	for err == nil {
		stored, writeErr := r.objects.Update(ctx, desired, metav1.UpdateOptions{})
		if writeErr == nil {
			if r.isTooLate(ctx, stored) {
				return nil, lock.ErrExpired
			}
			if !r.isToRestamp() {
				return stored, nil
			}
			r.goOnFrom(stored)
			desired, err = r.desired(stored, true)
			continue
		}
		var current *v1alpha1.Lock
		r.proof.narrowTo(r.before)
		switch {
		case refusal.IsConflict(writeErr), refusal.IsNotFound(writeErr):
			current, err = get(ctx, r.objects, r.name.Name)
		case definitelyNotApplied(writeErr):
			return nil, writeErr
		default:
			current, err = r.engine.readBack(ctx, r.objects, r.name.Name)
			r.engine.observer.Unanswered(observe.Renew, outcomeOf(isRenewed(current, desired), err))
		}
		if err != nil {
			return nil, err
		}
		if isRenewed(current, desired) && r.isTooLate(ctx, current) || r.isRevived(current) {
			return nil, lock.ErrExpired
		}
		if (isRenewed(current, desired) || r.isRenewedSince(current, desired)) && !r.isToRestamp() {
			return current, nil
		}
		if isRenewed(current, desired) {
			r.goOnFrom(current)
		}
		if !r.engine.pause(ctx, &backoff) {
			// Also after a conflict: the renewal was not refused, others were faster.
			return nil, fmt.Errorf("%w: %w", lock.ErrUnavailable, writeErr)
		}
		r.read = current
		desired, err = r.desired(current, true)
	}
	return nil, err
}

// isTooLate reports whether the lock, as the attempt has renewed it, may have been stored after the end that the renewal was to
// put off. Others may have been told then that it is free, so it ends the grant; but not before others might: by a clock that is
// behind this one, the holder still relies on the lock, and goes on until it has the answer.
func (r *renewalAttempt) isTooLate(ctx context.Context, renewed *v1alpha1.Lock) bool {
	if !r.hasEnded() {
		return false
	}
	r.engine.lockCache.forget(r.name, renewed.UID)
	r.engine.awaitReclaimable(ctx, r.latest)
	_ = r.engine.revoke(ctx, r.objects, renewed, audit.Reaped) // What fails is done again later.
	return true
}

// isRevived is isTooLate for a renewal that may be another's, and may have been told as one in time. It stays.
func (r *renewalAttempt) isRevived(current *v1alpha1.Lock) bool {
	known := grantOf(r.latest)
	return current != nil && known.matches(current) && known.isRenewedIn(current) && r.hasEnded()
}

// hasEnded reports whether the lock would have ended by now without the renewal.
func (r *renewalAttempt) hasEnded() bool { return rules.Expired(r.latest, r.engine.clock.Now()) }

// isRenewedSince reports whether the grant was renewed since this attempt read it, into a state that the proof is for, and not for a
// time before the attempt, from which on the holder counts its ttl. That is as good as if the attempt
// had done it. So ends an attempt that admission stamps, and of which a proxy repeats each write.
func (r *renewalAttempt) isRenewedSince(current, sent *v1alpha1.Lock) bool {
	return r.read != nil && current != nil && r.read.Spec.RenewTime != nil && current.Spec.RenewTime != nil &&
		rules.Release(current, r.proof.given, r.engine.clock.Now()) == nil && grantOf(r.read).matches(current) && r.read.Spec.RenewTime.Time.Before(current.Spec.RenewTime.Time) &&
		!current.Spec.RenewTime.Time.Before(r.began.Time) && !r.engine.isMisstamped(r.began) && sent.Spec.TTL.Equal(current.Spec.TTL)
}

// isToRestamp reports whether the lock must be renewed again, since it was stamped by a wrong clock
// and would end before its holder expects: unlike a grant, a renewal cannot be ended. It does so once.
func (r *renewalAttempt) isToRestamp() bool {
	if r.isRestamped || !r.engine.isMisstamped(r.stamped) {
		return false
	}
	r.isRestamped = true
	return true
}

// goOnFrom limits the rest of the attempt to a version that the attempt itself has written, if it is
// limited to one.
func (r *renewalAttempt) goOnFrom(stored *v1alpha1.Lock) {
	r.proof.narrowTo(stored)
	if r.proof.narrowed.ResourceVersion != "" {
		r.proof.narrowed.ResourceVersion = stored.ResourceVersion
	}
}

// firstDesired uses the informer's copy if that is whole and what this engine wrote last, and reads the
// lock otherwise.
func (r *renewalAttempt) firstDesired(ctx context.Context) (*v1alpha1.Lock, error) {
	engine := r.engine
	known, isKnown := engine.lockCache.find(r.name, r.proof.given, engine.clock.Now())
	if seen := engine.lockCache.get(r.name); isKnown && seen != nil && seen.UID == known.lock.UID &&
		seen.ResourceVersion == known.lock.ResourceVersion && !rules.IsStripped(seen) {
		return r.desired(seen, false)
	}
	current, err := get(ctx, r.objects, r.name.Name)
	if err != nil {
		return nil, err
	}
	return r.desired(current, true)
}

// desired returns the object that renews the lock. WasRead says that the attempt has read it, just now.
func (r *renewalAttempt) desired(current *v1alpha1.Lock, wasRead bool) (*v1alpha1.Lock, error) {
	r.stamped = servertime.Read(r.engine.clock)
	if r.began.IsZero() {
		r.began, r.before = r.stamped, current
	}
	desired, err := rules.Renew(current, r.proof.proof(), r.ttl, r.stamped.Time)
	if wasRead {
		r.proof.judged(current, err)
	}
	if err != nil {
		err = r.proof.explain(current, err, r.stamped.Time)
		if errors.Is(err, errHeldAnew) {
			r.engine.lockCache.take(r.name, r.proof.proof(), r.engine.clock.Now()) // The next call is to read.
		}
		return nil, err
	}
	r.latest = current
	r.engine.clearStamps(desired, v1alpha1.RequestRenewal)
	return desired, nil
}

// isRenewed reports whether current is the result of an unanswered renewal, or as good as that: another replica may
// have made one for the same ttl in the same microsecond. For a renewal that admission stamps it is always false.
func isRenewed(current, sent *v1alpha1.Lock) bool {
	return current != nil && current.Spec.Owner == sent.Spec.Owner && sent.Spec.RenewTime != nil &&
		current.Spec.AcquireTime.Equal(sent.Spec.AcquireTime) && current.Spec.RenewTime.Equal(sent.Spec.RenewTime) &&
		sent.Spec.TTL.Equal(current.Spec.TTL) && rules.ConnectionOf(current) == rules.ConnectionOf(sent)
}
