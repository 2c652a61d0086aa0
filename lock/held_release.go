package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// releasing is the state of a release.
type releasing struct {
	mu sync.Mutex
	// isFinal says that result will not change.
	isFinal bool
	result  error
	// isUnanswered says that a release went unanswered and may have happened.
	isUnanswered bool
}

// Release ends the lock and returns when none of its goroutines is left. It ends no later grant under
// the same owner token. The lock counts as ended from the beginning of the call. Release completes even
// if ctx has ended; it only uses the values of ctx, and takes no longer than [WithReleaseTimeout] permits.
//
// Release returns nil if the lock was held until then, also when called again. If the lock was
// lost before, the error matches that of [Held.Err]. If the service does not answer, the error
// matches [ErrUnavailable]: the lock may be released already, and ends at the latest with its ttl.
// Releasing again is then safe.
func (h *Held) Release(ctx context.Context) error {
	if h.Err() == nil { // Err reads the clock: the lock may have expired unnoticed
		h.end(fmt.Errorf("%s: %w", h.key, ErrReleased))
	}
	h.release.mu.Lock()
	defer h.release.mu.Unlock()
	if !h.release.isFinal {
		h.release.isFinal, h.release.result = h.sendRelease(ctx)
	}
	h.routines.Wait()
	if h.release.result != nil {
		return failed("release", h.key, h.client.namespace, h.release.result)
	}
	return nil
}

// Detach ends the hold in this process and leaves the lock as it is, for a call or process that takes
// it up by [Client.Resume], or until its ttl. It returns when none of the goroutines of the hold is
// left. A later Release does nothing and returns nil.
//
// Detach returns nil if the lock was held until then, also when called again. If it was lost or
// released before, the error matches that of [Held.Err].
func (h *Held) Detach() error {
	if h.Err() == nil { // as in Release
		h.end(fmt.Errorf("%s: %w", h.key, ErrDetached))
	}
	h.routines.Wait()
	if reason := h.Err(); !errors.Is(reason, ErrDetached) {
		return failed("detach", h.key, h.client.namespace, reason)
	}
	return nil
}

// sendRelease returns the result of the release and whether it is final.
func (h *Held) sendRelease(ctx context.Context) (isFinal bool, result error) {
	loss := h.Err()
	if errors.Is(loss, ErrDetached) {
		return true, nil
	}
	if !errors.Is(loss, ErrReleased) {
		// An unanswered renewal may have kept the lock. If other callers have the owner token, the
		// lock may be theirs by now.
		if h.isOwnerUnique && errors.Is(loss, ErrUnavailable) {
			_ = h.client.release(ctx, h.key, h.proof, h.releaseTimeout)
		}
		return true, loss
	}
	err := h.client.release(ctx, h.key, h.proof, h.releaseTimeout)
	loss = h.lossIn(err, h.clock.Now(), h.Deadline())
	switch {
	case err == nil, loss != nil && (h.release.isUnanswered || errors.Is(err, ErrUnavailable)):
		return true, nil // A release that went unanswered has done it.
	case loss != nil:
		return true, loss
	}
	h.release.isUnanswered = h.release.isUnanswered || !isRefusal(err) && !errors.Is(err, ErrNothingDone)
	return false, err
}
