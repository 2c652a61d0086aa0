package engine

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	known := newTestCache()
	show := func(version string) { known.OnAdd(granted(version), false) }
	want := func(isShared bool, version, when string) {
		t.Helper()
		if of := known.of(name); (of.own == of.shown) != isShared {
			t.Errorf("%s: shared is %t", when, !isShared)
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
	show("1")
	want(true, "1", "after it")

	known.put(granted("2"), now)
	want(false, "2", "renewed, and not shown yet")
	show("3")
	want(false, "2", "written by another client since")

	known.put(granted("3"), now)
	want(true, "3", "the event was first")
	if _, ok := known.take(name, proof, now); !ok || known.own(name) != nil {
		t.Errorf("%+v is left", known.of(name))
	}
	show("4")
	if known.own(name) != nil {
		t.Error("what the informer shows is no grant of this engine")
	}
	known.OnDelete(granted("5"))
	if len(known.locks) != 0 || known.number != 0 {
		t.Errorf("%d locks are left: %v", known.number, known.locks)
	}
}

// Where no informer tells of their ends, grants must not be remembered for ever.
func TestGrantsThatHaveExpiredAreForgotten(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	known := newTestCache()
	for i := range 3 * minSweep {
		made := rules.Grant("a", rules.Acquisition{Key: strconv.Itoa(i), Owner: "o", Holder: "alice", TTL: time.Second}, rules.DefaultLimits(), now)
		made.UID, made.ResourceVersion = "uid", "1"
		known.put(made, now)
		now = now.Add(time.Second / 100)
	}
	if known.number > minSweep {
		t.Errorf("%d are remembered", known.number)
	}
}

// An informer of the locks in use forgets one that is held, and its release takes the grant.
func TestASeriesLastsAsLongAsItsObject(t *testing.T) {
	now := time.Unix(1e9, 0)
	object := func(uid types.UID) *v1alpha1.Lock {
		return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "k", UID: uid, ResourceVersion: "1"}}
	}
	for title, end := range map[string]func(*lockCache){
		"deleted by this engine": func(c *lockCache) { c.forget(nameOf(object("1")), "1") },
		"deleted by another one": func(c *lockCache) { c.OnDelete(object("1")) },
	} {
		t.Run(title, func(t *testing.T) {
			known := newTestCache()
			name := nameOf(object("1"))
			for handOff := range maxHandOffs {
				if !known.series(name).mayGoOn("1", now) {
					t.Fatalf("after %d hand-offs it must not go on", handOff)
				}
				known.OnAdd(object("1"), false)
				known.countHandOff(object("1"), now)
				known.put(object("1"), now)
				known.OnForget(name)
				_, _ = known.take(name, lock.Proof{}, now)
			}
			made := known.series(name)
			if made.mayGoOn("1", now) || !made.mayGoOn("2", now) || (&series{uid: "1", handOffs: 1, since: now}).mayGoOn("1", now.Add(maxHandOffTime)) {
				t.Errorf("the series has no bound, or is that of any object: %+v", made)
			}
			end(known)
			if known.series(name) != nil || known.number != 0 {
				t.Errorf("kept: %+v", known.of(name))
			}
		})
	}
}
