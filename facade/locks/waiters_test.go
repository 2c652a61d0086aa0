package locks_test

import (
	"context"
	"fmt"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// oneHome has the line of the key "here" with two callers, and counts what it is asked about.
type oneHome struct {
	lock.Backend

	asked int
}

func (h *oneHome) IsHome(_ string, key v1alpha1.FullKey) bool {
	return key == v1alpha1.FullKeyOf("here")
}

func (h *oneHome) Lines(context.Context, string, v1alpha1.FullKey, int) (lines []lock.Line, isComplete bool, err error) {
	h.asked++
	return []lock.Line{{Namespace: "default", Key: "here", Waiting: 2}}, true, nil
}

// Callers that poll a lock make no work at another replica.
func TestOnlyTheHomeTellsHowManyWait(t *testing.T) {
	backend := &oneHome{Backend: locktest.New()}
	served, caller := newLocks(t, backend)
	if waiting := served.Waiting(t.Context(), caller, v1alpha1.FullKeyOf("elsewhere"), &lock.HeldError{}); waiting != nil || backend.asked != 0 {
		t.Errorf("elsewhere: %v, asked %d times", waiting, backend.asked)
	}
	told := fmt.Errorf("%w: %w", lock.ErrTimeout, &lock.HeldError{Waiting: new(7)})
	if waiting := served.Waiting(t.Context(), caller, v1alpha1.FullKeyOf("elsewhere"), told); waiting == nil || *waiting != 7 || backend.asked != 0 {
		t.Errorf("after a wait elsewhere: %v, after %d questions", waiting, backend.asked)
	}
	if waiting := served.Waiting(t.Context(), caller, v1alpha1.FullKeyOf("here"), lock.ErrHeld); waiting == nil || *waiting != 2 {
		t.Errorf("here: %v", waiting)
	}
}
