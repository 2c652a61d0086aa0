package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// prioritized is a line of callers that come at the second of their number.
type prioritized struct {
	*queues
	t    *testing.T
	name types.NamespacedName
}

func newPrioritized(t *testing.T) *prioritized {
	t.Helper()
	return &prioritized{queues: newQueues(shows(nil), 0), t: t, name: types.NamespacedName{Namespace: "default", Name: "report"}}
}

func waiterAt(owner string, priority int32, second int64) *waiter {
	joined := newWaiter()
	joined.request = waiterRequest{Acquisition: rules.Acquisition{Key: "report", Owner: owner}, priority: priority}
	joined.since = time.Unix(second, 0)
	return joined
}

func (p *prioritized) join(owner string, priority int32, second int64) *waiter {
	p.t.Helper()
	joined := waiterAt(owner, priority, second)
	if _, _, err := p.add(p.name, joined, joined.since); err != nil {
		p.t.Fatal(err)
	}
	return joined
}

func (p *prioritized) wantOrder(want ...string) {
	p.t.Helper()
	var got []string
	for element := p.byName[p.name].waiters.Front(); element != nil; element = element.Next() {
		got = append(got, element.Value.(*waiter).request.Owner)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestTheHighestPriorityIsServedFirst(t *testing.T) {
	line := newPrioritized(t)
	line.join("low", -5, 1)
	line.join("usual", 0, 2)
	line.join("high", 5, 3)
	line.join("usual later", 0, 4)
	line.join("highest", 7, 5)
	line.join("high later", 5, 6)
	before := waiterAt("high before", 5, 0) // It comes later, by way of a replica that was slow.
	if _, _, err := line.add(line.name, before, time.Unix(7, 0)); err != nil {
		t.Fatal(err)
	}
	line.wantOrder("highest", "high before", "high", "high later", "usual", "usual later", "low")
	if oldest := line.byName[line.name].oldest(); !oldest.Equal(time.Unix(0, 0)) {
		t.Errorf("the oldest came at %v", oldest)
	}
	listed, isComplete := line.list("", "", 1)
	if len(listed) != 1 || listed[0].Priority != 7 || isComplete {
		t.Errorf("listed: %+v, complete %t", listed, isComplete)
	}
}

// What is written for the head is its own; the next grant is that of the highest priority.
func TestAWriteIsNotTakenFromItsCaller(t *testing.T) {
	line := newPrioritized(t)
	first := line.join("first", 0, 1)
	queue, now := line.byName[line.name], time.Unix(10, 0)
	if step := line.next(queue, now, 0); step.do != doTry || step.waiter != first {
		t.Fatalf("the head is not tried: %+v", step)
	}
	high := line.join("high", 5, 2)
	if queue.inFlight != first {
		t.Error("the write is not for the caller that was the head")
	}
	line.recordHeld(queue, nil, false, now, 0)
	if !first.hasWaited {
		t.Error("the caller that was tried has not waited")
	}
	if queue.head() != high {
		t.Error("the highest priority is not next")
	}
}

// The goroutine may sleep for the sake of the head that was.
func TestANewHeadIsLookedAfterAtOnce(t *testing.T) {
	line := newPrioritized(t)
	line.join("first", 0, 1)
	queue := line.byName[line.name]
	for len(queue.wake) > 0 {
		<-queue.wake
	}
	line.join("behind", 0, 2)
	if len(queue.wake) != 0 {
		t.Error("the queue is woken for one behind")
	}
	line.join("high", 5, 3)
	if len(queue.wake) != 1 {
		t.Error("the queue is not woken")
	}
}

func TestAFullLineLetsThoseReturnThatHadAPlace(t *testing.T) {
	line := newPrioritized(t)
	line.standing.limits = WaiterLimits{PerLock: 2}
	queue := func() *queue { return line.byName[line.name] }
	first := line.join("first", 0, 1)
	line.join("second", 0, 2)
	_ = line.leave(queue(), first, time.Unix(3, 0))
	third := line.join("third", 0, 3)
	full := func(owner string, second int64) {
		t.Helper()
		_, _, err := line.add(line.name, waiterAt(owner, 9, second), time.Unix(second, 0))
		if _, isFull := errors.AsType[*lock.LineFullError](err); !isFull {
			t.Errorf("%s: %v", owner, err)
		}
	}
	full("new", 4)
	line.join("first", 0, 4)
	line.wantOrder("first", "second", "third")
	full("new", 4)

	// By leaving and coming again in turns, callers make no line of more than twice the bound.
	_ = line.leave(queue(), third, time.Unix(5, 0))
	for _, more := range []string{"a", "b", "c"} {
		left := waiterAt(more, 0, 5)
		left.isUnbounded = true
		if _, _, err := line.add(line.name, left, time.Unix(5, 0)); err != nil {
			t.Fatal(err)
		}
		_ = line.leave(queue(), left, time.Unix(5, 0))
	}
	line.join("a", 0, 6)
	line.join("b", 0, 6)
	full("c", 6)
	// Its place is still kept, and no longer than it was.
	if !line.kept.Has(waiterAt("c", 0, 6).caller(line.name), time.Unix(6, 0)) || line.kept.Has(waiterAt("c", 0, 6).caller(line.name), time.Unix(10, 0)) {
		t.Error("the place is not kept as before")
	}
}

// Those to whom the bounds do not apply take no room from others, and stand in line all the same.
func TestJobsTakeNoRoomInALine(t *testing.T) {
	for bound, limits := range map[lock.LineBound]WaiterLimits{
		lock.LinePerLock: {PerLock: 1}, lock.LinePerNamespace: {PerNamespace: 1}, lock.LinePerHolder: {PerHolder: 1},
	} {
		t.Run(string(bound), func(t *testing.T) {
			line := newPrioritized(t)
			line.standing.limits = limits
			var jobs []*waiter
			for second := range int64(2) {
				job := waiterAt("job", 0, second)
				job.isUnbounded = true
				if _, _, err := line.add(line.name, job, job.since); err != nil {
					t.Fatal(err)
				}
				jobs = append(jobs, job)
			}
			line.join("caller", 0, 2)
			line.wantOrder("job", "job", "caller")
			_, _, err := line.add(line.name, waiterAt("late", 0, 3), time.Unix(3, 0))
			if full, isFull := errors.AsType[*lock.LineFullError](err); !isFull || full.Bound != bound || full.Waiting != 1 || full.Place() != 4 {
				t.Errorf("one more is told %+v", err)
			}
			if used := line.waits(time.Unix(3, 0), 0).Lines; max(used.PerLock, used.PerNamespace, used.PerHolder) != 1 {
				t.Errorf("the bounds are used to %+v", used)
			}
			for _, job := range jobs {
				_ = line.leave(line.byName[line.name], job, time.Unix(4, 0))
			}
			if _, _, err := line.add(line.name, waiterAt("late", 0, 4), time.Unix(4, 0)); err == nil {
				t.Error("a Job that leaves makes room")
			}
		})
	}
}
