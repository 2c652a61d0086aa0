package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// renewals is the state of renewals since the last success.
type renewals struct {
	// next is when the next automatic renewal is due.
	next       time.Time
	isUnderWay bool
	failures   int
	// err is the last failure.
	err error
}

// RenewalPause returns how long after a grant or a renewal a lock with the ttl is to be renewed.
// Without failures it is a third of the ttl, which leaves time for several attempts, plus or minus
// a tenth of that, which spreads renewals of locks of the same moment. After failures in a row it
// is shorter: at first 100 ms or a twentieth of the ttl, whichever is less, twice as long each
// time, up to a tenth of the ttl; plus or minus a half of that.
//
// A [Held] with automatic renewal follows it. Callers that renew a lock through a [Backend] should
// do the same.
func RenewalPause(ttl time.Duration, failures int) time.Duration {
	if failures == 0 {
		return time.Duration(jittered(float64(ttl)/3, 0.1))
	}
	policy := RetryPolicy{Base: min(100*time.Millisecond, ttl/20), Factor: 2, Jitter: 0.5, Ceiling: ttl / 10}
	return policy.pause(failures)
}

// Renew replaces the remaining time of the lock by a whole ttl; it never adds to it. Zero means
// the ttl that the lock has; another value becomes its ttl. Locks with automatic renewal need it
// only to change the ttl.
//
// The error matches that of [Held.Err] if the lock has ended or is found to have ended,
// [ErrInvalid] if the ttl is negative, less than a millisecond or more than the service allows,
// [ErrRefused], [ErrForbidden] or [ErrUnauthenticated] if the renewal is refused, [ErrUnavailable], or
// the error of ctx. After the last two the renewal may have happened; the deadline is then the earlier
// of the two possible ones. A renewal that is refused changes nothing, unless the refusal takes longer than
// the ttl: the lock counts as ended by then.
func (h *Held) Renew(ctx context.Context, ttl time.Duration) error {
	if err := h.renewFor(ctx, ttl); err != nil {
		return failed("renew", h.key, h.client.namespace, err)
	}
	return nil
}

// renewFor refuses what no service grants before it could move the deadline.
func (h *Held) renewFor(ctx context.Context, ttl time.Duration) error {
	if ttl != 0 && ttl < rules.MinTTL {
		if err := h.Err(); err != nil {
			return err
		}
		return &InvalidError{Problems: field.ErrorList{
			field.Invalid(field.NewPath("spec", "ttl"), ttl.String(), fmt.Sprintf("must be at least %s, or zero for the present one", rules.MinTTL)),
		}}
	}
	return h.renew(ctx, renewal{ttl: ttl, isAsked: true})
}

// renewAutomatically makes one attempt and records its result. If its time ran out before it was
// sent, as in a stopped process, the renewal stays due.
func (h *Held) renewAutomatically() {
	h.mu.Lock()
	limit := h.ttl / 3
	h.mu.Unlock()
	_ = h.renewWithin(h.calls, limit)
	h.mu.Lock()
	h.isRenewingItself = false
	h.mu.Unlock()
	h.wakeLoop()
}

// renewWithin renews with a limit that leaves time for another attempt.
func (h *Held) renewWithin(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.renew(limited, renewal{})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return asUnavailable(err)
	}
	return err
}

func (h *Held) renew(ctx context.Context, attempt renewal) error {
	// One at a time: answers then arrive in the order of the ttls in force.
	select {
	case h.renewing <- struct{}{}:
		defer func() { <-h.renewing }()
	case <-ctx.Done():
		return ctx.Err()
	case <-h.done:
		return h.Err()
	}
	asked := attempt.ttl
	if err := h.beginRenewal(&attempt); err != nil {
		return err
	}
	defer h.wakeLoop()
	ctx, cancel := h.Bind(ctx)
	defer cancel()
	renewed, err := h.client.backend.Renew(ctx, h.client.namespace, h.key, h.proof, asked)
	return h.finishRenewal(attempt, renewed, err)
}

type renewal struct {
	sent time.Time
	ttl  time.Duration
	// isAsked says that the caller of the Held asked for it.
	isAsked bool
	// deadline was in force before the attempt.
	deadline time.Time
}

func (h *Held) beginRenewal(attempt *renewal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	h.checkDeadline(now)
	if h.err != nil {
		return h.err
	}
	attempt.sent, attempt.deadline = now, h.deadline
	if attempt.ttl == 0 {
		attempt.ttl = h.ttl
	}
	// A shorter ttl may be in force before its answer arrives, or without one.
	if earliest := now.Add(attempt.ttl); earliest.Before(h.deadline) {
		h.deadline = earliest
		h.wakeLoop()
	}
	h.renewal.isUnderWay = true
	return nil
}

func (h *Held) finishRenewal(attempt renewal, renewed *v1alpha1.Lock, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	h.renewal.isUnderWay = false
	now := h.clock.Now()
	if err == nil && !h.grant.isIn(renewed) {
		// A later grant under the same owner token; this Held must not renew it.
		err = ErrOwnerMismatch
	}
	if loss := h.lossIn(err, now, h.deadline); loss != nil {
		h.endLocked(loss)
		return loss
	}
	if err == nil {
		h.stored = renewed
		h.prolong(attempt.sent, ttlOf(renewed, attempt.ttl))
		return nil
	}
	if isRefusal(err) {
		h.deadline = attempt.deadline
		if attempt.isAsked {
			return err // It says nothing of the lock or of its other renewals.
		}
	}
	h.renewal.failures++
	h.renewal.next = now.Add(RenewalPause(h.ttl, h.renewal.failures))
	if !errors.Is(err, context.Canceled) {
		h.renewal.err = err
	}
	return err
}

// isRefusal reports whether a change of the lock that failed with err has certainly not happened, and
// will not.
func isRefusal(err error) bool {
	refusals := []error{ErrInvalid, ErrRefused, ErrForbidden, ErrUnauthenticated}
	return !errors.Is(err, ErrUnavailable) && slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}
