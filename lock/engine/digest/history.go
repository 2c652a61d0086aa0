package digest

import (
	"hash/maphash"
	"sort"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// kept is how many events a history goes back: seconds, at a thousand events a second.
	kept = 4096
	// promptly is within what time another watch shows a change, too, and its digest reaches this
	// one, if both are healthy.
	promptly = 300 * time.Millisecond
)

// nameHash stands for the name of a lock: a history outlasts no process, and names would take several
// times the memory. Two names of a million have the same one once in 10⁷ processes.
type nameHash uint64

var nameSeed = maphash.MakeSeed()

func nameOf(object metav1.Object) nameHash {
	return nameHash(maphash.Comparable(nameSeed, [2]string{object.GetNamespace(), object.GetName()}))
}

// History is what an informer has been shown: each lock, and the sums after the last events. It
// takes in lists and watches as the informer does, in the same order. Its zero value knows nothing.
// Not safe for concurrent use.
type History struct {
	// hashes are those of all locks, and sum is theirs. They replace each other by name, as in the
	// informer's store: what that has made up for is no difference.
	hashes map[nameHash]uint64
	sum    uint64
	// reached is the resourceVersion from which the informer would go on; zero during a list, whose
	// objects are not in the order of their versions, and if nothing is known.
	reached uint64
	// events are the last ones since the list, in the order of their versions, oldest at begin once
	// there are as many as are kept. The first stands for the list.
	events []event
	begin  int
}

// event is the state after an event.
type event struct {
	Digest

	at time.Time
}

// Begin forgets everything: a list begins.
func (h *History) Begin() {
	*h = History{hashes: map[nameHash]uint64{}, events: h.events[:0]}
}

// Add takes in one object of a list.
func (h *History) Add(listed metav1.Object) {
	h.put(nameOf(listed), hashOf(listed.GetUID(), listed.GetResourceVersion()))
}

// Complete records that the list was one of that version, and is complete.
func (h *History) Complete(version string, now time.Time) {
	parsed, _ := parseVersion(version)
	h.complete(parsed, now)
}

func (h *History) complete(version uint64, now time.Time) {
	h.reached, h.events, h.begin = version, h.events[:0], 0
	if version != 0 {
		h.events = append(h.events, event{Digest{version, h.sum}, now})
	}
}

// Resume records that the informer watches on from that version. If that is not where it was, a part
// is missing, and nothing is known until the next list.
func (h *History) Resume(version string) {
	if from, ok := parseVersion(version); !ok || from != h.reached {
		*h = History{}
	}
}

// Change is what an event of a watch says.
type Change struct {
	name     nameHash
	hash     uint64
	version  uint64
	kind     watch.EventType
	endsList bool
}

// EndsList reports whether the event ends the initial list of a watch.
func (c Change) EndsList() bool { return c.endsList }

// ChangeOf reads an event. Its object is not used any more.
func ChangeOf(shown watch.Event) Change {
	object, err := apimeta.Accessor(shown.Object)
	if err != nil {
		return Change{}
	}
	change := Change{kind: shown.Type, name: nameOf(object)}
	change.version, _ = parseVersion(object.GetResourceVersion())
	switch shown.Type {
	case watch.Added, watch.Modified:
		change.hash = hashOf(object.GetUID(), object.GetResourceVersion())
	case watch.Bookmark:
		change.endsList = object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	case watch.Deleted, watch.Error:
	}
	return change
}

// Apply takes in an event that the informer was shown: of a watch, or of the initial list of one.
func (h *History) Apply(change Change, now time.Time) {
	if h.hashes == nil {
		return // Nothing is known until the next list.
	}
	switch change.kind {
	case watch.Added, watch.Modified:
		h.put(change.name, change.hash)
	case watch.Deleted:
		h.sum -= h.hashes[change.name]
		delete(h.hashes, change.name)
	case watch.Bookmark:
		if change.endsList {
			h.complete(change.version, now)
		}
	case watch.Error:
	}
	if h.reached == 0 || change.version <= h.reached {
		return
	}
	h.reached = change.version
	if change.kind == watch.Bookmark {
		return
	}
	next := event{Digest{change.version, h.sum}, now}
	if len(h.events) < kept {
		h.events = append(h.events, next)
		return
	}
	h.events[h.begin] = next
	h.begin = (h.begin + 1) % kept
}

func (h *History) put(name nameHash, hash uint64) {
	h.sum += hash - h.hashes[name]
	h.hashes[name] = hash
}

// Latest returns the digest after the last event; none if nothing is known.
func (h *History) Latest() Digest {
	if h.reached == 0 || len(h.events) == 0 {
		return Digest{}
	}
	return h.at(len(h.events) - 1).Digest
}

func (h *History) at(index int) event { return h.events[(h.begin+index)%len(h.events)] }

// Verdict is what a history says of a digest that another replica has published.
type Verdict int

const (
	// Unknown means that the history does not reach back that far.
	Unknown Verdict = iota
	// Agrees means that both replicas were shown the same.
	Agrees
	// Lags means that they were, up to where the digest goes; but it leaves out a change that this
	// replica was shown long before. The other one is late, or has lost that change. Also of a
	// replica that does not say what it was shown.
	Lags
	// Differs means that one of them has lost a change.
	Differs
)

// Compare judges a digest that came with the event of the given version. The watch shows all events
// in their order, so the history has those that the digest sums up, unless they were lost.
func (h *History) Compare(published Digest, version string, now time.Time) Verdict {
	shown, ok := parseVersion(version)
	if !ok || published.version >= shown || h.reached == 0 || len(h.events) == 0 || h.at(0).version > published.version {
		return Unknown
	}
	next := sort.Search(len(h.events), func(i int) bool { return h.at(i).version > published.version })
	switch {
	case h.at(next-1).sum != published.sum:
		return Differs
	case next < len(h.events) && h.at(next).version < shown && now.Sub(h.at(next).at) > promptly:
		return Lags
	}
	return Agrees
}
