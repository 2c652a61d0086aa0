package engine

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// actorAt is an actor in one of the states of the table.
type actorAt struct {
	*queues
	queue *queue
	now   time.Time
	held  *v1alpha1.Lock
}

// newActor returns an actor that one caller, of the acquisition "a", waits at. The lock is free.
func newActor(t *testing.T) *actorAt {
	t.Helper()
	at := &actorAt{queues: newQueues(shows(nil), 0), now: time.Unix(1e9, 0)}
	at.random = func() float64 { return 0 }
	at.held = &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	at.held.Spec.ExpireTime = new(v1alpha1.NewTimestamp(at.now.Add(time.Hour)))
	at.join(t, lock.Request{Acquisition: rules.Acquisition{Owner: "a", ID: rules.NthTry(strings.Repeat("0", 36), 1)}, Wait: time.Minute})
	return at
}

func (a *actorAt) join(t *testing.T, request lock.Request) *waiter {
	t.Helper()
	joined := waiterFor(request, a.now)
	joined.outcome, joined.left = make(chan outcome), make(chan struct{})
	queue, _, err := a.add(nameOf(a.held), joined, a.now)
	if err != nil {
		t.Fatal(err)
	}
	a.queue = queue
	return joined
}

// seeHeld has the actor know that another holder has the lock, and that it has read it at that time.
func (a *actorAt) seeHeld(at time.Time) {
	a.queue.seen.update(lock.Change{Lock: a.held}, true)
	a.proven(a.queue, at)
}

// actorStates has a state for each row of the table in docs/design.md, by what its first column says.
var actorStates = map[string]func(*testing.T, *actorAt){
	"a grant is to be handed off; someone waits, and the series may go on": func(_ *testing.T, at *actorAt) {
		at.seeHeld(at.now)
		releaseOf(at.queues, at.held, at.now)
	},
	"the caller of a grant has left, and no one else may have it": func(t *testing.T, at *actorAt) {
		t.Helper()
		at.passOn(t.Context(), at.queue, at.held)
		at.takeOut()
	},
	"another call of a waiter's request has got the lock": func(t *testing.T, at *actorAt) {
		t.Helper()
		owner := rules.HashedOwner([]byte("a secret"), true)
		at.join(t, lock.Request{Acquisition: rules.Acquisition{Owner: owner}, Wait: time.Minute})
		at.held.Spec.Owner = owner
		at.seeHeld(at.now)
	},
	"no one waits": func(_ *testing.T, at *actorAt) { at.takeOut() },
	"the engine has stopped": func(_ *testing.T, at *actorAt) {
		at.stop()
	},
	"the engine of a program has learnt nothing of the lock for 5 s": func(_ *testing.T, at *actorAt) {
		at.maxUnanswered = lock.OperationTimeout
		at.recordFailure(at.queue, errors.New("no answer"), at.now)
		at.now = at.now.Add(lock.OperationTimeout)
	},
	"the wait of one behind the head is over": func(t *testing.T, at *actorAt) {
		t.Helper()
		overdue := at.join(t, lock.Request{Wait: time.Minute})
		at.seeHeld(at.now)
		at.queue.inFlight = overdue
		_ = at.giveUp(at.queue, overdue, at.now)
		at.queue.inFlight = nil
	},
	"another engine has granted a waiter the lock, and could not tell it": func(_ *testing.T, at *actorAt) {
		at.held.Spec.Owner = "a"
		at.held.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: rules.NthTry(strings.Repeat("0", 36), 0)}
		at.seeHeld(at.now)
	},
	"the lock seems free, or expired by more than clocks may differ": func(*testing.T, *actorAt) {},
	"the wait of the head is over": func(_ *testing.T, at *actorAt) {
		at.recordFailure(at.queue, errors.New("no answer"), at.now)
		head := at.queue.head()
		head.isOverdue, head.hasTriedLast = true, true
	},
	"the lock seems free, but a try has failed, or waiters of other engines come first": func(_ *testing.T, at *actorAt) {
		at.recordFailure(at.queue, errors.New("no answer"), at.now)
	},
	"the lock is held, and a read is due": func(_ *testing.T, at *actorAt) { at.seeHeld(at.now.Add(-recheckAfter)) },
	"the lock is held":                    func(_ *testing.T, at *actorAt) { at.seeHeld(at.now) },
}

func (a *actorAt) takeOut() { a.queue.takeOut(a.queue.head()) }

// The table is what a reader learns the actor from.
func TestTheTableOfTheDesignIsWhatActorsDo(t *testing.T) {
	rows := tableOfSteps(t)
	if len(rows) != len(actorStates) {
		t.Errorf("the table has %d rows, and there are %d states", len(rows), len(actorStates))
	}
	for _, row := range rows {
		t.Run(row.state, func(t *testing.T) {
			given, isKnown := actorStates[row.state]
			if !isKnown {
				t.Fatal("no such state")
			}
			at := newActor(t)
			given(t, at)
			if next := at.next(at.queue, at.now, 0); string(next.do) != row.action {
				t.Errorf("the actor does %q, and by the table %q", next.do, row.action)
			}
		})
	}
}

type tableRow struct{ state, action string }

// tableOfSteps returns the rows of the table in the design whose second column is headed "does".
func tableOfSteps(t *testing.T) (rows []tableRow) {
	t.Helper()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	isInTable := false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cells) < 4:
			isInTable = false
		case strings.TrimSpace(cells[2]) == "does":
			isInTable = true
		case isInTable && !strings.HasPrefix(cells[1], " ---"):
			rows = append(rows, tableRow{strings.TrimSpace(cells[1]), strings.Trim(cells[2], " `")})
		}
	}
	if len(rows) == 0 {
		t.Fatal("docs/design.md has no table of what actors do")
	}
	return rows
}
