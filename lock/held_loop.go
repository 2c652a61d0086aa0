package lock

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/servertime"
)

// start begins to watch the lock and, unless it was acquired [WithoutRenewal], to renew it.
func (h *Held) start() {
	timer := h.clock.NewTimer(h.step())
	h.routines.Go(func() { h.loop(timer) })
}

// lookAgainAfter is how long the loop sleeps at most: a timer stands still while the machine is
// suspended.
const lookAgainAfter = time.Second

// loop runs until the lock ends. It sends no request itself: a slow request must not delay the
// deadline.
func (h *Held) loop(timer clock.Timer) {
	defer timer.Stop()
	opened := make(chan (<-chan Change), 1)
	h.routines.Go(func() { h.openWatch(opened) })
	var changes <-chan Change
	for {
		select {
		case <-h.done:
			return
		case <-timer.C():
		case <-h.wake:
		case changes = <-opened:
		case change, isOpen := <-changes:
			if !isOpen {
				changes = nil
			} else {
				h.observe(change)
			}
		}
		timer.Reset(h.step())
	}
}

// openWatch begins a watch of the lock. If that fails, the next renewal shows the end of the lock.
func (h *Held) openWatch(opened chan<- (<-chan Change)) {
	if changes, err := h.client.backend.Watch(h.calls, h.client.namespace, h.key); err == nil {
		opened <- changes
	}
}

// observe handles a state that the watch reports.
func (h *Held) observe(change Change) {
	if h.Err() != nil {
		return // The end of the ttl is not taken for a forced release.
	}
	if change.Lock == nil {
		h.routines.Go(h.confirm)
		return
	}
	if loss := h.lossSeen(change); loss != nil {
		h.end(loss)
	} else if h.grant.isIn(change.Lock) {
		h.isSeen.Store(true)
	}
}

// confirmPause is how long the watch may lag behind the grant before confirm makes a request.
const confirmPause = 200 * time.Millisecond

// confirm reads the lock after a watch began without it: either the watch is behind the grant, as
// usual for a moment, or it began after the end.
func (h *Held) confirm() {
	if sleep(h.calls, h.clock, confirmPause) && !h.isSeen.Load() {
		_ = h.look(h.calls)
	}
}

// look reads the lock, and ends the hold if that shows another grant or none. It returns why the hold is not known to be
// in force.
func (h *Held) look(ctx context.Context) error {
	found, err := h.client.backend.Get(ctx, h.client.namespace, h.key)
	if err == nil && !h.grant.isIn(found) {
		err = ErrOwnerMismatch // also if the owner token is the same
	}
	if loss := h.lossIn(err, h.clock.Now(), h.Deadline()); loss != nil {
		h.end(loss)
		return loss
	}
	if err == nil {
		h.isSeen.Store(true)
	}
	return err
}

// step starts a renewal if one is due and returns how long until the next action.
func (h *Held) step() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	h.checkDeadline(now)
	pause := servertime.Left(h.deadline, now)
	switch {
	case h.err != nil || !h.isRenewed || h.renewal.isUnderWay || h.isRenewingItself:
	case !now.Before(h.renewal.next), servertime.Jump(h.renewal.next, now) > 0:
		h.isRenewingItself = true
		h.routines.Go(h.renewAutomatically)
	default:
		pause = min(pause, h.renewal.next.Sub(now))
	}
	return min(pause, lookAgainAfter)
}

// wakeLoop makes the loop check the time.
func (h *Held) wakeLoop() {
	select {
	case h.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Bind returns a context that ends with ctx or with the lock.
func (h *Held) Bind(ctx context.Context) (bound context.Context, cancel func()) {
	bound, cancelBound := context.WithCancelCause(ctx)
	if err := h.Err(); err != nil { // The loop may not have noticed it yet.
		cancelBound(err)
	}
	stop := context.AfterFunc(h.calls, func() { cancelBound(h.Err()) })
	return bound, func() {
		stop()
		cancelBound(nil)
	}
}
