package engine

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// The grants of a replica are most of the locks in its cache. They must not be in memory twice, in
// whichever order answer and event arrive.
func TestAGrantIsKeptOnceWithWhatTheInformerShows(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	granted := func(version string) *v1alpha1.Lock {
		made := rules.Grant("a", rules.Acquisition{Key: "k", Owner: "o", Holder: "alice", TTL: time.Minute}, rules.DefaultLimits(), now)
		made.UID, made.ResourceVersion = "uid", version
		return made
	}
	name := nameOf(granted("1"))
	proof := lock.Proof{Owner: "o"}
	var shown *v1alpha1.Lock
	known := newGrants(func(types.NamespacedName) *v1alpha1.Lock { return shown })
	want := func(isShared bool, version, when string) {
		t.Helper()
		if got := known.byName[name] == shown; got != isShared {
			t.Errorf("%s: shared is %t", when, got)
		}
		found, ok := known.find(name, proof, now)
		if token := found.lock.Spec.FencingToken; !ok || found.lock.ResourceVersion != version || token == nil {
			t.Errorf("%s: found %+v, %t", when, found.lock, ok)
		}
		if _, ok := known.find(name, lock.Proof{Owner: "other"}, now); ok {
			t.Errorf("%s: found without a proof", when)
		}
	}

	known.put(granted("1"), now)
	want(false, "1", "before the event")
	shown = granted("1")
	known.shown(name)
	want(true, "1", "after it")

	known.put(granted("2"), now)
	want(false, "2", "renewed, and not shown yet")
	known.shown(name)
	want(false, "2", "still behind")
	shown = granted("3")
	known.shown(name)
	want(false, "2", "written by another client since")

	known.put(granted("3"), now)
	want(true, "3", "the event was first")
	if _, ok := known.take(name, proof, now); !ok || len(known.byName) != 0 {
		t.Errorf("%d are left", len(known.byName))
	}
	known.shown(name)
	if len(known.byName) != 0 {
		t.Error("what the informer shows is no grant of this engine")
	}
}
