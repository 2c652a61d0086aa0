package lock

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// start begins to watch over the lock and, if so asked, to renew it.
func (h *Held) start() {
	timer := h.clock.NewTimer(h.step())
	h.routines.Go(func() { h.loop(timer) })
}

// loop runs until the lock ends. It sends no request itself, so that the deadline is
// kept whatever becomes of one.
func (h *Held) loop(timer clock.Timer) {
	defer timer.Stop()
	opened := make(chan (<-chan Change), 1)
	h.routines.Go(func() { h.open(opened) })
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
				h.see(change)
			}
		}
		timer.Reset(h.step())
	}
}

// open begins a watch of the lock. Without one, the next renewal tells what happened.
func (h *Held) open(opened chan<- (<-chan Change)) {
	if changes, err := h.client.backend.Watch(h.calls, h.client.namespace, h.key); err == nil {
		opened <- changes
	}
}

// see judges a state that the watch tells of.
func (h *Held) see(change Change) {
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

// confirmPause is how far a watch may lag behind a grant before that costs a request.
const confirmPause = 200 * time.Millisecond

// confirm asks whether the lock is there after a watch began without it: either the
// watch is behind the grant, as it usually is for a moment, or it began after the end.
func (h *Held) confirm() {
	if !sleep(h.calls, h.clock, confirmPause) || h.isSeen.Load() {
		return
	}
	found, err := h.client.backend.Get(h.calls, h.client.namespace, h.key)
	if err == nil && !h.grant.isIn(found) {
		err = ErrOwnerMismatch // under whatever owner token
	}
	if loss := h.lossIn(err, h.clock.Now(), h.Deadline()); loss != nil {
		h.end(loss)
	}
}

// step does what is due and returns how long it is until something else is.
func (h *Held) step() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	h.checkDeadline(now)
	next := h.deadline
	switch {
	case h.err != nil || !h.isRenewed || h.renewal.isUnderWay || h.isRenewingItself:
	case !now.Before(h.renewal.next):
		h.isRenewingItself = true
		h.routines.Go(h.renewAutomatically)
	case h.renewal.next.Before(next):
		next = h.renewal.next
	}
	return next.Sub(now)
}

// wakeLoop makes the loop look at the time again.
func (h *Held) wakeLoop() {
	select {
	case h.wake <- struct{}{}:
	default: // it is about to
	}
}

// Bind returns a context that ends with ctx or with the lock.
func (h *Held) Bind(ctx context.Context) (bound context.Context, cancel func()) {
	bound, cancelBound := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.calls, func() { cancelBound(h.Err()) })
	return bound, func() {
		stop()
		cancelBound(nil)
	}
}
