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

// However many replicas there are, and whatever they withdraw and leave anew.
func TestDepositsAreBounded(t *testing.T) {
	own := &keeper{}
	at := &host{local: own, timers: clock.RealClock{}}
	visits := make([]*visit, 2)
	for i := range visits {
		visits[i] = &visit{host: at, outbox: newOutbox[answer](), places: map[uint64]engine.Place{}, deposits: map[uint64]places.Place{}}
	}
	leave := func(with *visit, id uint64) {
		with.answer(t.Context(), question{Kind: deposit, ID: id, Kept: &places.Caller{Owner: strconv.FormatUint(id, 10)}})
	}
	const each = maxDeposits/2 + 10
	for id := range uint64(each) {
		leave(visits[0], id)
		leave(visits[0], id) // The same.
		leave(visits[1], id)
	}
	for range 3 {
		visits[0].answer(t.Context(), question{Kind: withdraw, ID: 1})
	}
	leave(visits[1], each)
	leave(visits[1], each+1)
	for _, from := range visits {
		from.end(t.Context())
		leave(from, 1)
	}
	if own.kept != maxDeposits || at.deposits.Load() != 0 {
		t.Errorf("%d places are kept, and %d counted", own.kept, at.deposits.Load())
	}
}
