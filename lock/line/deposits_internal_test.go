package line

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
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

// Where more wait than can be left with another replica at once, those that would lose most come first.
func TestTheOldestPlacesAreLeftFirst(t *testing.T) {
	out := &visitOut{outbox: newOutbox[question](), asked: map[uint64]recipient{}}
	l := &Line{self: "own", timers: clock.RealClock{}, members: newMembers("own", clock.RealClock{}, logr.Discard(), nil, nil)}
	l.members.now.homes = []string{"own", "next"}
	l.members.peers["next"] = &runningPeer{peer: &peer{stream: out}}
	now := l.timers.Now()
	at := func(place int) time.Time { return now.Add(time.Duration(place)*time.Second - time.Hour) }
	for place := range depositsAtOnce + 100 {
		own := &try{lineWait: &lineWait{line: l}, into: newMailbox(nil)}
		own.into.place(at(place))
		l.deposits.add(own)
	}
	for _, want := range []struct{ begin, end int }{{0, depositsAtOnce}, {depositsAtOnce, depositsAtOnce + 100}} {
		l.depositNew()
		sent := out.outbox.pending
		out.outbox.pending = nil
		if len(sent) != want.end-want.begin {
			t.Fatalf("%d places are left", len(sent))
		}
		for index := range sent {
			if stood := l.members.epoch.Add(sent[index].Stood); !stood.Equal(at(want.begin + index)) {
				t.Fatalf("place %d is since %v", want.begin+index, stood)
			}
		}
	}
}
