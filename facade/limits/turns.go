package limits

import (
	"context"
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
// number of calls under way. It is safe for concurrent use.
type Turns struct {
	clock clock.WithDelayedExecution

	mu sync.Mutex
	// tenants are those that have calls, or had some lately.
	tenants map[string]*tenant
}

// tenant takes turns. A channel is full while a call has the place, and serves those that wait in their order.
type tenant struct {
	// turn is the place of the call whose turn it is, and next that of the one which waits for it beside [Upkeep].
	turn, next chan struct{}
	calls      int
	last       time.Time
}

// NewTurns returns the turns of no tenant yet.
func NewTurns(timers clock.WithDelayedExecution) *Turns {
	return &Turns{clock: timers, tenants: map[string]*tenant{}}
}

// Begin returns when it is the turn of a call of the tenant, see [TenantOf]. It has the turn until end is called, once, or for
// 100 ms. [Upkeep] goes before other calls, of which one at most is ahead of it: it makes room. The error is that of ctx or, after
// 5 s, [ErrTurns]; the call must not go on then.
func (t *Turns) Begin(ctx context.Context, name string, cost Cost) (end func(), err error) {
	of, isAlone := t.enter(name)
	leave := func() { t.leave(of) }
	select {
	case of.turn <- struct{}{}:
	default:
		if isAlone {
			return leave, nil
		}
		if err := of.await(ctx, cost); err != nil {
			leave()
			return nil, err
		}
	}
	over := sync.OnceFunc(func() { <-of.turn })
	timer := t.clock.AfterFunc(maxTurn, over)
	return func() {
		timer.Stop()
		over()
		leave()
	}, nil
}

// await takes the turn.
func (of *tenant) await(ctx context.Context, cost Cost) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxHeldBack, ErrTurns)
	defer cancel()
	if cost != Upkeep {
		if err := take(ctx, of.next); err != nil {
			return err
		}
		defer func() { <-of.next }()
	}
	return take(ctx, of.turn)
}

func take(ctx context.Context, place chan struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter counts a call of the tenant, and reports whether no other tenant asks. Of the others it forgets those that do not.
func (t *Turns) enter(name string) (of *tenant, isAlone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of = t.tenants[name]; of == nil {
		of = &tenant{turn: make(chan struct{}, 1), next: make(chan struct{}, 1)}
		t.tenants[name] = of
	}
	of.calls++
	for other, each := range t.tenants {
		switch {
		case each == of:
		case each.calls > 0 || t.clock.Since(each.last) < lingerFor:
			return of, false
		default:
			delete(t.tenants, other)
		}
	}
	return of, true
}

func (t *Turns) leave(of *tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.calls--
	of.last = t.clock.Now()
}
