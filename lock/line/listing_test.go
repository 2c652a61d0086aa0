package line_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
)

// crowd has callers wait at a replica, each by its request, until the test ends.
func (r *replicas) crowd(at *replica, number int, request func(int) lock.Request) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	var callers sync.WaitGroup
	for i := range number {
		callers.Go(func() { _, _ = at.Acquire(ctx, "default", request(i)) })
	}
	r.t.Cleanup(func() { leave(); callers.Wait() })
	<-time.After(time.Second)
	synctest.Wait()
}

// Long texts of one tenant must not end the stream, and with it the waits of all others.
func TestALongListDoesNotBreakTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0, 0)
		edge, home := r.edges()[0], r.all[r.home()]
		r.hold(home, "holder")
		const callers = 1000
		long := strings.Repeat("<", rules.MaxReasonLength)
		r.crowd(edge, callers, func(i int) lock.Request {
			request := by(fmt.Sprint("w", i), lock.WaitForever)
			request.Reason = long
			return request
		})
		listed, isComplete, err := edge.Waiters(t.Context(), "default", key, callers)
		if err != nil || isComplete || len(listed) == 0 || len(listed) == callers {
			t.Fatalf("%d waiters are listed, complete %t: %v", len(listed), isComplete, err)
		}
		for i, waiter := range listed {
			if waiter.Place != i+1 {
				t.Fatalf("place %d is listed after %d others", waiter.Place, i)
			}
		}
		if _, connected := edge.Peers(); connected != 1 {
			t.Error("the stream broke")
		}
		if lines, isComplete, err := edge.Lines(t.Context(), "default", key, 1); err != nil || !isComplete || len(lines) != 1 || lines[0].Waiting != callers {
			t.Errorf("%+v, complete %t: %v", lines, isComplete, err)
		}
	})
}

// A caller whose wait has ended is told how many go on waiting, whichever replica has the line, and without a question more.
func TestTheEndOfAWaitTellsHowManyGoOnWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0, 0)
		edge, home := r.edges()[0], r.all[r.home()]
		r.hold(home, "holder")
		for i, waiting := range []int{0, 3} {
			r.crowd(edge, waiting, func(j int) lock.Request { return by(fmt.Sprint("w", j), lock.WaitForever) })
			_, err := edge.Acquire(t.Context(), "default", by(fmt.Sprint("brief", i), time.Second))
			held, isHeld := errors.AsType[*lock.HeldError](err)
			if !isHeld || !errors.Is(err, lock.ErrTimeout) || held.Waiting == nil || *held.Waiting != waiting {
				t.Errorf("%d wait, and the caller is told %v: %+v", waiting, err, held)
			}
		}
	})
}

func TestLinesAreCountedAcrossReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0, 0)
		const keys = 10
		request := func(i int) lock.Request {
			request := by(fmt.Sprint("w", i), lock.WaitForever)
			request.Key = fmt.Sprint("k", i%keys)
			return request
		}
		for i := range keys {
			first := request(i)
			first.Owner, first.Wait = "holder", 0
			if _, err := r.at(i).Acquire(t.Context(), "default", first); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second) // All replicas have seen who holds them.
		r.crowd(r.at(0), 2*keys, request)
		r.crowd(r.at(1), keys, func(i int) lock.Request { return request(2*keys + i) })
		atHome := 0
		for i := range 2 {
			for _, of := range r.at(i).engine.Waits().Namespaces {
				atHome += of.Callers
			}
			r.at(i).mustCount("", keys, 3)
		}
		// The metric of a replica is of the lines that it is home to.
		if atHome != 3*keys {
			t.Errorf("the metrics of all replicas count %d callers of %d", atHome, 3*keys)
		}
		if lines, isComplete, err := r.at(0).Lines(t.Context(), "", "", keys-1); err != nil || isComplete || len(lines) != keys-1 {
			t.Errorf("of more than the limit: %d, complete %t: %v", len(lines), isComplete, err)
		}
		r.at(0).mustCount(v1alpha1.FullKeyOf("free"), 0, 0)
	})
}

// Callers at all replicas wait at the home of their line, which alone makes the Event of a long wait.
func TestOnlyTheHomeTellsOfALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0, 0, 0)
		r.hold(r.edges()[0], "holder")
		recorder := events.NewFakeRecorder(10)
		ctx, stop := context.WithCancel(t.Context())
		var looking sync.WaitGroup
		defer looking.Wait()
		defer stop()
		for _, at := range r.all {
			long := &lockevents.LongWaits{Waits: at.engine, Reporter: &lockevents.Reporter{Recorder: recorder}, Clock: clock.RealClock{}}
			looking.Go(func() { _ = long.Start(ctx) })
		}
		for i, name := range r.names() {
			r.crowd(r.all[name], 2, func(number int) lock.Request { return by(fmt.Sprint(name, number), lock.WaitForever) })
			atHome := 0
			for name, at := range r.all {
				at.engine.WaitedFor(func(_ *v1alpha1.Lock, callers int) {
					if name != r.home() {
						t.Errorf("%d callers wait at %s, which is not home", callers, name)
					}
					atHome += callers
				})
			}
			if want := 2 * (i + 1); atHome != want {
				t.Errorf("%d callers wait at home, want %d", atHome, want)
			}
		}
		<-time.After(lockevents.LongWait + time.Minute)
		synctest.Wait()
		close(recorder.Events)
		var notes []string
		for note := range recorder.Events {
			notes = append(notes, note)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "WaitingLong") || !strings.Contains(notes[0], "now 6 of them") {
			t.Errorf("the Events are %q, want one of 6 callers", notes)
		}
	})
}

// mustCount fails unless as many callers wait for each of a number of locks.
func (r *replica) mustCount(key v1alpha1.FullKey, number, waiting int) {
	r.t.Helper()
	lines, isComplete, err := r.Lines(r.t.Context(), "default", key, number+1)
	if err != nil || !isComplete || len(lines) != number {
		r.t.Fatalf("%+v, complete %t: %v", lines, isComplete, err)
	}
	for _, line := range lines {
		if line.Namespace != "default" || line.Waiting != waiting {
			r.t.Errorf("%+v", line)
		}
	}
}
