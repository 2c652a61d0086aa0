package engine

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// shown is an informer that shows one lock, or none.
type shown struct {
	held *v1alpha1.Lock
	// isForeign says that another engine has granted it.
	isForeign bool
	// handOffs are those of the engine.
	handOffs *series
	// asked is called when the lock is asked for; nil if nothing is to be done.
	asked func()
}

func shows(held *v1alpha1.Lock) *shown { return &shown{held: held} }

func showsForeign(held *v1alpha1.Lock) *shown { return &shown{held: held, isForeign: true} }

func (s *shown) get(types.NamespacedName) *v1alpha1.Lock {
	if s.asked != nil {
		s.asked()
	}
	return s.held
}

func (s *shown) series(types.NamespacedName) *series { return s.handOffs }

func (s *shown) countHandOff(granted *v1alpha1.Lock, now time.Time) {
	s.handOffs = s.handOffs.next(granted.UID, now)
}

func (s *shown) newest(name types.NamespacedName) (newest *v1alpha1.Lock, isOwn bool) {
	return s.get(name), !s.isForeign
}

// releaseOf keeps the queue of a grant that is being released, and gives it to the actor if that takes it.
func releaseOf(q *queues, held *v1alpha1.Lock, now time.Time) (of *queue, isPosted bool) {
	of = q.hold(held, now)
	return of, q.post(&handOffRequest{ctx: context.Background(), held: grant{lock: held}, done: make(chan struct{})}, now)
}

// handedTo returns the waiter that the actor hands a released lock off to, or nil.
func handedTo(q *queues, held *v1alpha1.Lock, now time.Time) *waiter {
	queue, isPosted := releaseOf(q, held, now)
	if !isPosted {
		return nil
	}
	if step := q.next(queue, now, 0); step.do == doHandOff {
		return step.waiter
	}
	return nil
}

func newWaiter() *waiter { return &waiter{outcome: make(chan outcome), left: make(chan struct{})} }

// queueOf returns a queue with one waiter for a lock that the informer shows.
func queueOf(held *v1alpha1.Lock) (*queues, *queue) {
	q := newQueues(shows(held), maxSpread(false))
	queue, _, _ := q.add(nameOf(held), newWaiter(), time.Time{})
	return q, queue
}

// A queue must learn the end of a lock that is reported while the queue is created. Otherwise its
// waiters would wait until the expiry of a deleted lock.
func TestNewQueueMissesNoChange(t *testing.T) {
	name := types.NamespacedName{Namespace: "default", Name: "report"}
	meta := metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "1", ResourceVersion: "10"}
	held := &v1alpha1.Lock{ObjectMeta: meta}
	gone := held.DeepCopy()
	gone.ResourceVersion = "11"

	var q *queues
	told := make(chan struct{})
	q = newQueues(&shown{held: held, asked: func() {
		if q.mu.TryLock() {
			q.mu.Unlock()
			t.Error("a change could be told now, and no queue would take it in")
		}
		go func() {
			defer close(told)
			q.changed(name, lock.Change{Lock: gone, IsGone: true}, time.Time{})
		}()
	}}, 0)
	queue, isNew, _ := q.add(name, newWaiter(), time.Time{})
	<-told
	if !isNew {
		t.Error("the queue is not new")
	}
	if queue.seen.lock != nil {
		t.Error("the queue still takes the lock for held")
	}
}

// A read from before a known change does not show the present state.
func TestAnAnswerThatIsOutOfDateIsIgnored(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "12"}}
	before := held.DeepCopy()
	before.UID, before.ResourceVersion = "1", "10"
	q, queue := queueOf(held)
	q.recordNotFound(before, time.Time{})
	if queue.seen.lock == nil {
		t.Error("the lock is taken to be free by an answer from before it was acquired")
	}
	q.recordNotFound(held, time.Time{})
	if queue.seen.lock != nil {
		t.Error("the lock is taken to be held though it was not there")
	}
}

// The other engines need no head start for a lock that was deleted elsewhere.
func TestALockThatIsNotFoundIsTriedAtOnceUnlessThisEngineDeletesIt(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "12"}}
	now := time.Unix(1e9, 0)
	for isDeleting, want := range map[bool]time.Duration{false: 0, true: yieldFor} {
		q, queue := queueOf(held)
		if isDeleting {
			q.yield(nameOf(held))
		}
		q.recordNotFound(held, now)
		if pause := queue.untilDue(now, 0); pause != want {
			t.Errorf("while it deletes the lock, %t: stands back for %v", isDeleting, pause)
		}
	}
}

// A read for the head may be answered after the delete, with what was before it.
func TestWhatThisEngineHasDeletedIsNotHeld(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	held.Spec.ExpireTime = new(v1alpha1.NewTimestamp(time.Unix(2e9, 0)))
	now := time.Unix(1e9, 0)
	for name, record := range map[string]func(*queues, *queue){
		"after a try":     func(q *queues, queue *queue) { q.recordHeld(queue, held, false, now, 0) },
		"after a recheck": func(q *queues, queue *queue) { q.recordRecheck(queue, held, now) },
	} {
		t.Run(name, func(t *testing.T) {
			q, queue := queueOf(held)
			queue.seen = lastSeen{}
			q.recordDeleted(held, now)
			record(q, queue)
			if pause := queue.untilDue(now, 0); queue.seen.lock != nil || pause > maxBackoff/10 {
				t.Errorf("the next try comes after %v, lock: %v", pause, queue.seen.lock)
			}
		})
	}
}

func TestAQueueIgnoresOlderStates(t *testing.T) {
	state := func(uid types.UID, version string) *v1alpha1.Lock {
		return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: uid, ResourceVersion: version}}
	}
	cases := map[string]struct {
		change        lock.Change
		wantVersion   string
		wantFree      bool
		wantConfirmed bool
	}{
		"a newer state":                         {lock.Change{Lock: state("2", "12")}, "12", false, true},
		"an older state":                        {lock.Change{Lock: state("2", "9")}, "10", false, false},
		"the same state, shown by the informer": {lock.Change{Lock: state("2", "10")}, "10", false, true},
		"its end":                               {lock.Change{Lock: state("2", "13"), IsGone: true}, "13", true, true},
		"its end, without the event":            {lock.Change{Lock: state("2", "10"), IsGone: true}, "10", true, true},
		"the end of an older object":            {lock.Change{Lock: state("1", "8"), IsGone: true}, "10", false, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			k := lastSeen{lock: state("2", "10"), version: "10"}
			k.update(test.change, true)
			if k.version != test.wantVersion || (k.lock == nil) != test.wantFree || k.isConfirmed != test.wantConfirmed {
				t.Errorf("version %s, free %v, confirmed %v", k.version, k.lock == nil, k.isConfirmed)
			}
		})
	}
	t.Run("a confirmed object of which the informer knows an older one only", func(t *testing.T) {
		k := lastSeen{lock: state("2", "10"), version: "10", isConfirmed: true}
		k.update(lock.Change{Lock: state("1", "8"), IsGone: true}, true)
		if k.isConfirmed {
			t.Error("nothing will tell of its end, and yet it is not read again")
		}
	})
}

// The pause ends when the informer reports the delete, except for a head start of the other
// replicas.
func TestAReplicaPausesForWaitersOfOtherReplicas(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	gone := held.DeepCopy()
	gone.ResourceVersion = "11"
	now := time.Unix(1e9, 0)
	shown := func(q *queues) { q.changed(nameOf(held), lock.Change{Lock: gone, IsGone: true}, now) }
	answered := func(q *queues) { q.recordDeleted(held, now) }
	cases := map[string]struct {
		then []func(*queues)
		want time.Duration
	}{
		"until the informer shows it":    {[]func(*queues){answered}, yieldFor},
		"when the informer has shown it": {[]func(*queues){answered, shown}, headStart},
		"when the informer was quicker":  {[]func(*queues){shown, answered}, headStart},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			q, queue := queueOf(held)
			q.yield(nameOf(held))
			for _, step := range test.then {
				step(q)
			}
			if pause := queue.untilDue(now, 0); pause != test.want {
				t.Errorf("stands back for %v, want %v", pause, test.want)
			}
		})
	}
	for name, then := range map[string][]func(*queues){
		"in a queue that has begun during the delete, when the informer has shown it": {answered, shown},
		"in a queue that has begun during the delete, when the informer was quicker":  {shown, answered},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueues(shows(held), maxSpread(false))
			if _, isPosted := releaseOf(q, held, now); isPosted {
				t.Fatal("the lock is handed off to no one")
			}
			q.yield(nameOf(held))
			queue, _, _ := q.add(nameOf(held), newWaiter(), now)
			for _, step := range then {
				step(q)
			}
			if pause := queue.untilDue(now, 0); pause != headStart {
				t.Errorf("stands back for %v, want %v", pause, headStart)
			}
		})
	}
	t.Run("not at all when another client has deleted the lock", func(t *testing.T) {
		q, queue := queueOf(held)
		shown(q)
		if pause := queue.untilDue(now, 0); pause > 0 {
			t.Errorf("stands back for %v", pause)
		}
	})
}

// If the informer reports the end of a lock between the look at its cache and the record, the queue
// would wait for that report for ever.
func TestWhetherTheInformerHasShownALockIsDecidedUnderTheMutex(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	records := map[string]func(*queues, *queue){
		"after a try":     func(q *queues, queue *queue) { q.recordHeld(queue, held, true, time.Time{}, 0) },
		"after a recheck": func(q *queues, queue *queue) { q.recordRecheck(queue, held, time.Time{}) },
	}
	for title, record := range records {
		t.Run(title, func(t *testing.T) {
			q, queue := queueOf(held)
			isAsked := false
			q.known = &shown{held: held, asked: func() {
				isAsked = true
				if q.mu.TryLock() {
					q.mu.Unlock()
					t.Error("the informer could report a change in between")
				}
			}}
			record(q, queue)
			if !isAsked || !queue.seen.isConfirmed {
				t.Errorf("asked: %v, confirmed: %v", isAsked, queue.seen.isConfirmed)
			}
		})
	}
}

// A release does not wait for a read of the same lock.
func TestAReleaseAbandonsARecheck(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q, queue := queueOf(held)
	isCancelled := false
	q.beginRecheck(queue, func() { isCancelled = true })
	releaseOf(q, held, now)
	if !isCancelled {
		t.Error("the read goes on")
	}
	if q.recordRecheckFailed(queue, context.Canceled, now) {
		t.Error("what was abandoned counts as a failure")
	}
	if q.beginRecheck(queue, func() {}) {
		t.Error("the lock is read before it is handed off")
	}
	if step := q.next(queue, now, 0); step.do != doHandOff {
		t.Errorf("%+v is no hand-off to the waiter", step)
	}
}

// The waiter may leave between the release and the actor.
func TestAReleaseIsToldIfNobodyWaitsAnyMore(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q, queue := queueOf(held)
	if _, isPosted := releaseOf(q, held, now); !isPosted {
		t.Fatal("the actor does not take the grant")
	}
	given := queue.requests[0]
	queue.takeOut(queue.head())
	q.next(queue, now, 0)
	select {
	case <-given.done:
		if given.isTried {
			t.Error("a hand-off was tried")
		}
	default:
		t.Error("the release waits on")
	}
}

func TestARecheckIsAbandonedOnceTheStateIsKnown(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	renewed := held.DeepCopy()
	renewed.ResourceVersion = "11"
	now := time.Unix(1e9, 0)
	q, queue := queueOf(held)
	for _, tell := range []func(){
		func() { q.changed(nameOf(held), lock.Change{Lock: renewed}, now) },
		func() { q.recordNotFound(renewed, now) }, // as another replica has found out
	} {
		isCancelled := false
		if !q.beginRecheck(queue, func() { isCancelled = true }) {
			t.Fatal("a held lock is not read")
		}
		tell()
		if !isCancelled {
			t.Error("the read goes on")
		}
		if q.recordRecheckFailed(queue, context.Canceled, now) || queue.backoff.err != nil {
			t.Error("what was abandoned counts as a failure")
		}
	}
	// The change may also come between the decision to read and the read.
	if q.beginRecheck(queue, func() {}) {
		t.Error("a lock that is known to be free is read")
	}
}

func TestTheNextWaiterIsSeenToWhenTheHeadLeaves(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q, queue := queueOf(held)
	_, _, _ = q.add(nameOf(held), newWaiter(), now)
	third := newWaiter()
	_, _, _ = q.add(nameOf(held), third, now)
	isWoken := func() bool {
		select {
		case <-queue.wake:
			return true
		default:
			return false
		}
	}
	if err := q.giveUp(queue, third, now); err == nil || isWoken() {
		t.Errorf("the last of three has left (%v), and yet the queue was woken", err)
	}
	if err := q.giveUp(queue, queue.head(), now); err == nil || !isWoken() {
		t.Errorf("the head has left (%v), and the queue was not woken", err)
	}
}

// What a clock said while it was an hour ahead counts no more after it was set back.
func TestAWatchIsNotOpenByAClockThatWasSetBack(t *testing.T) {
	now := time.Unix(1e9, 0)
	local := clocktesting.NewFakeClock(now.Add(time.Hour))
	stream := NewWatchStream(local, logr.Discard())
	stream.stream(watch.NewFake(), metav1.ListOptions{}).Stop()
	local.SetTime(now)
	if left := stream.untilClosed(now); left > reopenGrace {
		t.Errorf("it counts as open for %s", left)
	}
}

func TestALockThatWasReadByAClockThatWasSetBackIsNotProven(t *testing.T) {
	q, queue := queueOf(&v1alpha1.Lock{})
	now := time.Unix(1e9, 0)
	q.closedAt = now.Add(-time.Hour)
	for at, want := range map[time.Time]bool{now: true, now.Add(-maxProofAge): true, now.Add(-maxProofAge - 1): false, now.Add(time.Hour): false} {
		q.proven(queue, at)
		if got := q.isProven(queue, now); got != want {
			t.Errorf("read %v ago: %v, want %v", now.Sub(at), got, want)
		}
	}
}

// What the watch shows may be late, so it puts no read off. What a request tells does.
func TestAChangeThatIsShownPutsNoReadOff(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	begin := time.Unix(1e9, 0)
	held.Spec.ExpireTime = new(v1alpha1.NewTimestamp(begin.Add(time.Hour)))
	q, queue := queueOf(held)
	queue.seen.isConfirmed = true
	q.proven(queue, begin)
	version := 10
	renew := func(now time.Time, tell func(*v1alpha1.Lock, time.Time)) {
		version++
		held = held.DeepCopy()
		held.ResourceVersion = strconv.Itoa(version)
		q.known = shows(held)
		tell(held, now)
	}
	now := begin.Add(recheckAfter - time.Millisecond)
	renew(now, func(read *v1alpha1.Lock, now time.Time) { q.recordRecheck(queue, read, now) })
	now = now.Add(recheckAfter / 2)
	renew(now, func(shown *v1alpha1.Lock, now time.Time) { q.changed(nameOf(shown), lock.Change{Lock: shown}, now) })
	if step := q.next(queue, now, 0); step.do == doReread {
		t.Error("reads, though a read has told the state half the time before")
	}
	now = now.Add(recheckAfter / 2)
	renew(now, func(shown *v1alpha1.Lock, now time.Time) { q.changed(nameOf(shown), lock.Change{Lock: shown}, now) })
	if step := q.next(queue, now, 0); step.do != doReread {
		t.Error("does not read, since the watch has shown a change")
	}
}

// A caller that has been granted the lock, and has not looked yet, is not told that its wait is over.
func TestAWaitDoesNotEndAfterItsGrant(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	q, queue := queueOf(held)
	granted := queue.head()
	q.remove(queue, granted)
	if err := q.giveUp(queue, granted, time.Time{}); err != nil {
		t.Errorf("the wait ends: %v", err)
	}
	if q.kept.Has(granted.caller(queue.name), time.Time{}) {
		t.Error("the place of a caller that was served is kept")
	}
}

// Callers are served in the order of their arrival, also if the clock is set back in between, as when a program learns
// from the first answer of the API server that its machine was ahead.
func TestAClockThatIsSetBackChangesNoPlace(t *testing.T) {
	now := time.Now()
	q := newQueues(shows(nil), 0)
	name := types.NamespacedName{Namespace: "default", Name: "report"}
	join := func(owner string, at time.Time) *waiter {
		joined := waiterFor(lock.Request{Acquisition: rules.Acquisition{Owner: owner}, Wait: lock.WaitForever}, at)
		if _, _, err := q.add(name, joined, at); err != nil {
			t.Fatal(err)
		}
		return joined
	}
	first := join("first", now.Add(10*time.Minute))
	second := join("second", now)
	third := join("third", now.Add(time.Second))
	var order []*waiter
	for element := q.byName[name].waiters.Front(); element != nil; element = element.Next() {
		order = append(order, element.Value.(*waiter))
	}
	if !slices.Equal(order, []*waiter{first, second, third}) {
		t.Error("a later caller stands before an earlier one")
	}
}

// A grant that its holder releases was that of the whole request. One of which no caller knows passes to another call of it.
func TestWhoGetsTheGrantOfARepeatedRequest(t *testing.T) {
	now := time.Now()
	request := rules.Acquisition{Owner: rules.HashedOwner([]byte("a secret"), true), Holder: "alice"}
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	held.Spec.Owner, held.Spec.Holder = request.Owner, request.Holder
	for title, isReleased := range map[string]bool{"released by its holder": true, "taken back": false} {
		t.Run(title, func(t *testing.T) {
			q := newQueues(shows(nil), 0)
			join := func(by rules.Acquisition) *waiter {
				joined := waiterFor(lock.Request{Acquisition: by, Wait: lock.WaitForever}, now)
				if _, _, err := q.add(nameOf(held), joined, now); err != nil {
					t.Fatal(err)
				}
				return joined
			}
			repeated, behind := join(request), join(rules.Acquisition{Owner: "behind"})
			want := repeated
			if isReleased {
				q.endRepeated(held)
				want = behind
			}
			got, queue := handedTo(q, held, now), q.byName[nameOf(held)]
			if got != want {
				t.Errorf("%+v is handed the lock", got)
			}
			if q.endRepeated(held); got == repeated && repeated.isOut {
				t.Error("the one that is handed the lock is told that another call has it")
			}
			if told := queue.takeFound(); isReleased != (told == repeated) {
				t.Errorf("%+v is told that another call has had the lock", told)
			}
		})
	}
}
