package lock

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// lossIn returns the loss that the answer to a renewal or release shows, or nil if it shows none.
// Before the deadline only those who have the owner token end a lock, and what ErrForceReleased stands for.
func (h *Held) lossIn(answer error, now, deadline time.Time) error {
	switch {
	case errors.Is(answer, ErrOwnerMismatch):
		return fmt.Errorf("%s: %w", h.key, ErrTakenOver)
	case errors.Is(answer, ErrExpired), errors.Is(answer, ErrNotHeld) && servertime.Left(deadline, now) <= 0:
		return fmt.Errorf("%s: %w", h.key, ErrExpired)
	case errors.Is(answer, ErrNotHeld):
		return h.lossByRelease()
	}
	return nil
}

// lossByRelease is the loss of a lock that has ended before its deadline, and not by this Held.
func (h *Held) lossByRelease() error {
	if !h.isOwnerUnique {
		return fmt.Errorf("%s was released, by force or by another that has its owner token: %w", h.key, ErrNotHeld)
	}
	return fmt.Errorf("%s: %w", h.key, ErrForceReleased)
}

// lossSeen returns the loss that a watched state shows. It returns nil if the grant is still in
// force or the state is older than the grant: a watch may lag behind.
func (h *Held) lossSeen(change Change) error {
	switch {
	case h.grant.isIn(change.Lock):
		if change.IsGone {
			return h.lossByRelease()
		}
		return nil
	case h.grant.isBefore(change.Lock):
		return fmt.Errorf("%s: %w", h.key, ErrTakenOver)
	}
	return nil
}

// isIn reports whether the object records this grant. A façade that has granted it does not tell the UID.
func (g heldGrant) isIn(lock *v1alpha1.Lock) bool {
	return (g.uid == "" || lock.UID == g.uid) && lock.Spec.AcquireTime.Equal(g.acquireTime)
}

// isBefore reports whether the object was written after the grant.
func (g heldGrant) isBefore(lock *v1alpha1.Lock) bool {
	order, err := resourceversion.CompareResourceVersion(g.resourceVersion, lock.ResourceVersion)
	return err == nil && order < 0
}

// asUnavailable wraps the error in ErrUnavailable unless it matches already.
func asUnavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
