package line

import (
	"context"
	"slices"
	"sync"
	"time"

	"forrst.dev/lock-operator/lock/engine/places"
)

// deposits are the places of this replica's own callers in lines that it is home to, as far as it has left them with the
// replica that is home next. If this one dies, they are kept there. Callers that wait at another home do not need that:
// their places are known at both.
type deposits struct {
	mu sync.Mutex
	// own are the tries at this replica, by which home it has left their places.
	own map[*try]deposited
}

// deposited is where the place of a caller was left; zero if it was not.
type deposited struct {
	with *visitOut
	id   uint64
	// in is the view that has chosen the replica.
	in <-chan struct{}
}

const (
	// depositAfter is how long a caller waits at home until its place is left with another replica: most callers wait for
	// less, and for them the messages would cost more than a place is worth.
	depositAfter = time.Second
	// depositPeriod is how often this replica looks for such callers.
	depositPeriod = 250 * time.Millisecond
	// maxDeposits bounds those that others have left with a replica, to what it can keep when they die.
	maxDeposits = 50_000
	// depositsAtOnce bounds how many are sent at a time: when the homes change, other messages are in more of a hurry.
	depositsAtOnce = 1000
)

func (d *deposits) add(own *try) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == nil {
		d.own = map[*try]deposited{}
	}
	d.own[own] = deposited{}
}

// end forgets a try that is over, here and at the replica that has its place.
func (d *deposits) end(own *try) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own[own].withdraw()
	delete(d.own, own)
}

func (d deposited) withdraw() {
	if d.with != nil {
		d.with.outbox.put(question{Kind: withdraw, ID: d.id})
	}
}

// deposit leaves places with the next homes until ctx ends.
func (l *Line) deposit(ctx context.Context) {
	ticker := l.timers.NewTicker(depositPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			l.depositNew()
		}
	}
}

// depositNew leaves the places that have no deposit, or not with the replica that is home next by now.
func (l *Line) depositNew() {
	view := l.members.view()
	next := view.without(l.self)
	if len(next) == 0 {
		return
	}
	l.deposits.mu.Lock()
	defer l.deposits.mu.Unlock()
	type place struct {
		own   *try
		stood time.Time
	}
	var due []place
	for own, before := range l.deposits.own {
		if before.in == view.changed {
			continue
		}
		if stood, isPlaced := own.into.placed(); isPlaced && l.timers.Since(stood) >= depositAfter {
			due = append(due, place{own, stood})
		}
	}
	// Those that have waited for longest lose most.
	slices.SortFunc(due, func(a, b place) int { return a.stood.Compare(b.stood) })
	sent := 0
	for _, each := range due {
		own := each.own
		before := l.deposits.own[own]
		now := deposited{in: view.changed, with: l.members.streamTo(HomeOf(own.name, next))}
		if before.with != now.with {
			if sent == depositsAtOnce {
				return
			}
			sent++
			before.withdraw()
			// No try changes what this reads of the request.
			now.id = now.with.deposit(places.CallerOf(own.name, &own.request.Acquisition), each.stood.Sub(l.members.epoch))
		} else {
			now.id = before.id
		}
		l.deposits.own[own] = now
	}
}

// without returns the homes without one, or the connected members without it if there is no other home.
func (v view) without(self string) []string {
	for _, from := range [][]string{v.homes, v.connected} {
		others := slices.DeleteFunc(slices.Clone(from), func(name string) bool { return name == self })
		if len(others) > 0 {
			return others
		}
	}
	return nil
}

// deposit leaves a place on the stream. Nil is none.
func (v *visitOut) deposit(of places.Caller, stood time.Duration) (id uint64) {
	if v == nil {
		return 0
	}
	v.mu.Lock()
	v.lastID++
	id = v.lastID
	v.mu.Unlock()
	v.outbox.put(question{Kind: deposit, ID: id, Kept: &of, Stood: stood})
	return id
}

// notePlace takes in what the other replica says of a caller that does not stand in a line here.
func (v *visit) notePlace(asked question) {
	if asked.Kind == withdraw {
		v.mu.Lock()
		defer v.mu.Unlock()
		if _, isHere := v.deposits[asked.ID]; isHere {
			delete(v.deposits, asked.ID)
			v.host.deposits.Add(-1)
		}
		return
	}
	if asked.Kept == nil {
		return
	}
	place := places.Place{Caller: *asked.Kept, Since: v.since(asked.Stood)}
	if asked.Kind == keep {
		v.host.local.Keep(place)
		return
	}
	place.IsFixed = true // While its replica lives on, the caller stands there: it is not moved to another home.
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.places == nil {
		return
	}
	if _, isHere := v.deposits[asked.ID]; !isHere && v.host.deposits.Add(1) > maxDeposits {
		v.host.deposits.Add(-1)
		return
	}
	v.deposits[asked.ID] = place
}
