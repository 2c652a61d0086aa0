package line

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/places"
)

// keeper counts the places that are kept.
type keeper struct {
	Local
	kept int
}

func (*keeper) Now() time.Time { return time.Unix(1000, 0) }

func (k *keeper) Keep(places.Place) { k.kept++ }

func (*keeper) Release(context.Context, string, v1alpha1.FullKey, lock.Proof) error { return nil }

// The word to leave may cross the offer of the lock.
func TestACallerThatLeavesWhileItIsOfferedTheLockKeepsItsPlace(t *testing.T) {
	for isMoving, want := range map[bool]int{false: 1, true: 0} {
		own := &keeper{}
		from := &visit{
			host: &host{local: own, timers: clock.RealClock{}}, outbox: newOutbox[answer](), places: map[uint64]engine.Place{},
			offers: map[uint64]offer{1: {lock: &v1alpha1.Lock{}}},
		}
		from.leave(t.Context(), question{ID: 1, IsMoving: isMoving})
		from.calls.Wait()
		if own.kept != want {
			t.Errorf("%d places are kept, want %d; moving: %v", own.kept, want, isMoving)
		}
	}
}
