package places

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var name = types.NamespacedName{Namespace: "default", Name: "report"}

func by(owner string) Caller { return Caller{Lock: name, Owner: owner, Holder: "alice"} }

func TestAPlaceIsTakenUpOnceAndForAWhile(t *testing.T) {
	left := time.Unix(1000, 0)
	came := left.Add(-time.Hour)
	for _, test := range []struct {
		after  time.Duration
		of     Caller
		isKept bool
	}{
		{0, by("a"), true},
		{KeepFor - 1, by("a"), true},
		{KeepFor, by("a"), false},
		{0, by("b"), false},
		{0, Caller{Lock: types.NamespacedName{Namespace: "other", Name: "report"}, Owner: "a", Holder: "alice"}, false},
		{0, Caller{Lock: name, Owner: "a", Holder: "bob"}, false},
		{0, Caller{Lock: name, Owner: "a", Holder: "alice", HolderUID: "another"}, false},
	} {
		var kept Kept
		kept.Keep(Place{Caller: by("a"), Since: came}, left)
		since, isKept := kept.Take(test.of, left.Add(test.after))
		if isKept != test.isKept || isKept && !since.Equal(came) {
			t.Errorf("%v after %v: since %v, %t", test.of, test.after, since, isKept)
		}
		if _, isKept := kept.Take(by("a"), left); isKept && test.isKept {
			t.Errorf("%v after %v: taken up twice", test.of, test.after)
		}
	}
}

func TestTheEarlierPlaceOfACallerIsKept(t *testing.T) {
	left := time.Unix(1000, 0)
	var kept Kept
	kept.Keep(Place{Caller: by("alice"), Since: left.Add(-time.Minute)}, left)
	kept.Keep(Place{Caller: by("alice"), Since: left.Add(-time.Second)}, left)
	if since, _ := kept.Take(by("alice"), left); !since.Equal(left.Add(-time.Minute)) {
		t.Errorf("the place is that of %v", since)
	}
}

func TestTheOldestPlacesAreForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	var kept Kept
	for i := range maxKept + 1 {
		kept.Keep(Place{Caller: by(strconv.Itoa(i)), Since: now}, now)
	}
	if len(kept.byCaller) != maxKept || kept.oldest.Len() != maxKept {
		t.Errorf("%d places are kept", len(kept.byCaller))
	}
	if _, isKept := kept.Take(by("0"), now); isKept {
		t.Error("the oldest is kept")
	}
	if _, isKept := kept.Take(by(strconv.Itoa(maxKept)), now); !isKept {
		t.Error("the newest is not kept")
	}
	kept.Take(by("unknown"), now.Add(KeepFor))
	if len(kept.byCaller) != 0 || kept.oldest.Len() != 0 {
		t.Errorf("%d places are kept after their time", len(kept.byCaller))
	}
}
