package limits

import (
	"container/list"
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxTurn is how long a call has its turn at most: a slow API server is asked by several at a time.
	maxTurn = 100 * time.Millisecond
	// lingerFor is how long a tenant counts after its last call: one that asks without a pause sends the next soon.
	lingerFor = 50 * time.Millisecond
)

// Turns has the calls of each tenant ask the API server one after the other while several tenants do. A busy API server
// serves whoever has most requests under way most of the time, and so it serves tenants alike. A tenant that is alone has any
// number of calls under way. The zero value is ready with the real clock. It is safe for concurrent use.
type Turns struct {
	// Clock may be set before the first use.
	Clock clock.WithDelayedExecution

	mu sync.Mutex
	// tenants are those that have calls, or had some lately.
	tenants   map[string]*tenant
	forgotten time.Time
}

// tenant has calls, or had some lately.
type tenant struct {
	underWay int
	// upkeep and work are the calls that wait, in their order: channels that are closed when it is their turn.
	upkeep, work list.List
	last         time.Time
}

// TenantOf returns whose calls take turns with each other: those of the service accounts of a namespace, or those of any other user.
func TenantOf(user string) string {
	if namespace := namespaceOf(user); namespace != "" {
		return "namespace " + namespace
	}
	return user
}

// Turn is that of a call. A nil one is that of a call that takes no turns.
type Turn struct {
	turns  *Turns
	of     *tenant
	timer  clock.Timer
	isOver bool
}

// Begin returns when it is the turn of a call of the tenant, until [Turn.End] or for 100 ms. [Upkeep] goes before other calls of
// its tenant: it makes room. The error is that of ctx or, after 5 s, [ErrTurns]; the call must not go on then.
func (t *Turns) Begin(ctx context.Context, tenant string, cost Cost) (*Turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Clock == nil {
		t.Clock = clock.RealClock{}
	}
	of := t.tenant(tenant)
	waiting, isNext := &of.work, make(chan struct{})
	if cost == Upkeep {
		waiting = &of.upkeep
	}
	place := waiting.PushBack(isNext)
	t.next(of)
	if err := t.await(ctx, isNext); err != nil {
		waiting.Remove(place)
		return nil, err
	}
	turn := &Turn{turns: t, of: of}
	turn.timer = t.Clock.AfterFunc(maxTurn, turn.end)
	return turn, nil
}

// End ends the turn, unless it is over. It is safe for concurrent use.
func (t *Turn) End() {
	if t != nil {
		t.timer.Stop()
		t.end()
	}
}

func (t *Turn) end() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if !t.isOver {
		t.isOver = true
		t.of.underWay--
		t.of.last = t.turns.Clock.Now()
		t.turns.next(t.of)
	}
}

// await waits for the turn. It needs the mutex, which it gives up meanwhile.
func (t *Turns) await(ctx context.Context, isNext <-chan struct{}) error {
	select {
	case <-isNext:
		return nil
	default:
	}
	t.mu.Unlock()
	timer := t.Clock.NewTimer(maxHeldBack)
	defer timer.Stop()
	select {
	case <-isNext:
	case <-timer.C():
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case <-isNext:
		return nil
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrTurns
}

// tenant returns the tenant, and forgets those that had no call lately. It needs the mutex.
func (t *Turns) tenant(name string) *tenant {
	now := t.Clock.Now()
	if now.Sub(t.forgotten) >= lingerFor {
		t.forgotten = now
		maps.DeleteFunc(t.tenants, func(_ string, each *tenant) bool {
			return each.underWay == 0 && each.upkeep.Len()+each.work.Len() == 0 && now.Sub(each.last) >= lingerFor
		})
	}
	of := t.tenants[name]
	if of == nil {
		if t.tenants == nil {
			t.tenants = map[string]*tenant{}
		}
		of = &tenant{last: now}
		t.tenants[name] = of
	}
	return of
}

// next begins the calls whose turn it is. It needs the mutex.
func (t *Turns) next(of *tenant) {
	for _, waiting := range []*list.List{&of.upkeep, &of.work} {
		for first := waiting.Front(); first != nil && (of.underWay == 0 || len(t.tenants) == 1); first = waiting.Front() {
			isNext, _ := waiting.Remove(first).(chan struct{})
			close(isNext)
			of.underWay++
		}
	}
}
