package line

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/clock"

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

func TestTheDepositsOfAReplicaAreBounded(t *testing.T) {
	own := &keeper{}
	from := &visit{host: &host{local: own, timers: clock.RealClock{}}, outbox: newOutbox[answer](), places: map[uint64]engine.Place{}, deposits: map[uint64]places.Place{}}
	for i := range uint64(maxDeposits + 10) {
		from.answer(t.Context(), question{Kind: deposit, ID: i, Kept: &places.Caller{Owner: strconv.FormatUint(i, 10)}})
	}
	from.answer(t.Context(), question{Kind: withdraw, ID: 1})
	from.end(t.Context())
	from.answer(t.Context(), question{Kind: deposit, ID: 1, Kept: &places.Caller{}})
	if own.kept != maxDeposits-1 {
		t.Errorf("%d places are kept", own.kept)
	}
}
