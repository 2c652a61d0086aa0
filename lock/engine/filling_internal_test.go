package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock"
)

// Until the informer has shown all locks, one that it has not shown may well be held.
func TestAnIncompleteCacheSaysOfNoLockThatItIsGone(t *testing.T) {
	seen := newTestCache()
	held, free := types.NamespacedName{Namespace: "a", Name: "held"}, types.NamespacedName{Namespace: "a", Name: "free"}
	ofHeld, ofFree := seen.watch(t.Context(), held), seen.watch(t.Context(), free)
	wantNothing := func(from <-chan lock.Change, when string) {
		t.Helper()
		select {
		case change := <-from:
			t.Errorf("%s: told %+v", when, change)
		default:
		}
	}
	wantNothing(ofHeld, "before anything was shown")
	wantNothing(ofFree, "before anything was shown")
	engine := &Engine{hasInformer: true, lockCache: seen, clock: clock.RealClock{}, working: t.Context()}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := engine.Stream(left, "a", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream begins: %v", err)
	}
	seen.OnAdd(cached("a", "held"), true)
	if change := <-ofHeld; change.IsGone {
		t.Error("a lock that was shown is gone")
	}
	seen.complete()
	if change := <-ofFree; !change.IsGone {
		t.Errorf("once all were shown: told %+v", change)
	}
	wantNothing(ofHeld, "once all were shown")
	if change := <-seen.watch(t.Context(), free); !change.IsGone {
		t.Errorf("later: told %+v", change)
	}
	if begun, err := engine.Stream(t.Context(), "a", ""); err != nil || len(begun.Present) != 1 {
		t.Errorf("a stream begins with %v, %v", begun.Present, err)
	}
}

// A first list that takes long is no watch that is closed; one that fails, or is not answered, is.
func TestAFirstListDoesNotCountAsAClosedWatch(t *testing.T) {
	stream := NewWatchStream(clock.RealClock{}, logr.Discard())
	later := stream.clock.Now().Add(maxFirstList / 2)
	want := func(isReached, isClosed bool, when string) {
		t.Helper()
		if state := stream.watchState(later); state.IsUnanswered == isReached || state.ClosedFor > 0 != isClosed {
			t.Errorf("%s: %+v", when, state)
		}
	}
	want(false, true, "without an answer")
	stream.reached()
	want(true, false, "during the list")
	later = later.Add(maxFirstList)
	want(true, true, "during a list that never ends")
	later = later.Add(-maxFirstList)
	stream.failed(errors.New("made up"))
	want(true, true, "after a failure")
}
