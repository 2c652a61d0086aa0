package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"forrst.dev/lock-operator/lock"
)

const (
	minShortTTL = 300 * time.Millisecond
	// maxShortTTL makes expiry and take-over common.
	maxShortTTL = 2 * time.Second
	// longTTL outlives every check, which exposes locks that are left behind.
	longTTL = 30 * time.Second
	// hungUpTTL is the ttl of calls whose client hangs up. If the answer is already on its
	// way, neither client nor replica can end the grant.
	hungUpTTL = 15 * time.Second
	// maxWait lets a dead watch show.
	maxWait = 30 * time.Second
	// roundLength is how long a set of keys is used. It keeps the history of each key short
	// enough to be checked.
	roundLength = 20 * time.Second
)

// workload describes the work of a run's clients.
type workload struct {
	clients, keys int
	// The rest are shares. Of acquires: waits wait, of which longWaits wait for up to
	// maxWait, hangUps hang up, longTTLs have a long ttl. Of holders: overslept neither renew nor release before their ttl ends, renewals
	// renew, twice release by two calls at once, forced end by a forced release.
	waits, longWaits, hangUps, longTTLs, overslept, renewals, twice, forced float64
	// couples is the share of sessions that pass a lock of their own from one replica to
	// another.
	couples float64
}

var ordinary = workload{clients: 20, keys: 12, waits: 0.4, longWaits: 0.1, hangUps: 0.1, longTTLs: 0.15, overslept: 0.15, renewals: 0.3, twice: 0.2, forced: 0.02, couples: 0.1}

// worker is one client at work.
type worker struct {
	*caller

	load   workload
	random *rand.Rand
	// former is the owner token of an ended acquisition.
	former string
	// thief is a client of another user, who knows the owner tokens of this client; or nil.
	thief *caller
	// coupled counts the sessions of couples.
	coupled int
}

func (w *worker) run(ctx context.Context) {
	defer w.http.CloseIdleConnections()
	if w.thief != nil {
		defer w.thief.http.CloseIdleConnections()
	}
	for pause(ctx, between(w.random, time.Millisecond, 40*time.Millisecond)) {
		// A session that has begun is finished.
		w.session(context.WithoutCancel(ctx))
	}
}

// chance returns true for that share of its calls.
func (w *worker) chance(share float64) bool { return w.random.Float64() < share }

func (w *worker) operation(kind kind, key, owner string) operation {
	return operation{kind: kind, key: key, owner: owner, replica: w.replica()}
}

// replica chooses one that is not busy with many of the other clients, as a load balancer
// does. Otherwise all clients would soon wait for one that does not answer.
func (w *worker) replica() int {
	first := w.random.IntN(len(w.replicas))
	for offset := range w.replicas {
		if number := (first + offset) % len(w.replicas); w.running.at(number) <= w.load.clients/(len(w.replicas)+1) {
			return number
		}
	}
	return first
}

// key chooses half of the times among all keys, which are often free then, and else among
// few, which are not.
func (w *worker) key() string {
	keys := w.load.keys
	if w.chance(0.5) {
		keys = (keys + 7) / 8
	}
	return fmt.Sprintf("round%d-key%d", w.history.now()/roundLength, w.random.IntN(keys))
}

// session acquires a lock, holds it and releases it, or makes mistakes on the way.
func (w *worker) session(ctx context.Context) {
	key := w.key()
	if w.digress(ctx, key) {
		return
	}
	switch {
	case w.chance(0.05):
		w.do(ctx, w.operation(status, key, ""))
	case w.former != "" && w.chance(0.05):
		w.do(ctx, w.operation(release, key, w.former))
	case w.former != "" && w.chance(0.05*w.load.renewals):
		again := w.operation(renew, key, w.former)
		again.ttl = w.shortTTL()
		w.do(ctx, again)
	}
	asked := w.operation(acquire, key, lock.NewOwner())
	asked.ttl = w.shortTTL()
	if w.chance(w.load.longTTLs) {
		asked.ttl = longTTL
	}
	if w.chance(w.load.waits) {
		asked.wait = w.upTo(3*time.Second) + time.Millisecond
		if w.chance(w.load.longWaits) {
			asked.wait = w.upTo(maxWait) + time.Millisecond
		}
	}
	if w.chance(w.load.hangUps) {
		w.hangUp(ctx, asked)
		return
	}
	got := w.do(ctx, asked)
	switch {
	case got.outcome == done:
		w.hold(ctx, got)
	case got.hungUp:
		// The client cannot know whether the lock was granted, so it releases it.
		w.release(ctx, got)
	}
	w.former = got.owner
}

// digress does something else in some sessions, and reports whether it has.
func (w *worker) digress(ctx context.Context, key string) bool {
	switch {
	case w.chance(w.load.couples):
		w.couple(ctx)
	case w.token == "" && w.chance(w.load.forced): // Others need a right and a reason.
		w.do(ctx, w.operation(forceRelease, key, ""))
	case w.token != "" && w.chance(0.03):
		stranger := w.operation(acquire, key, lock.NewOwner())
		stranger.ttl, stranger.isStranger = longTTL, true
		w.do(ctx, stranger)
	default:
		return false
	}
	return true
}

// couple acquires a lock that no other client wants, waits for it on another replica, and
// releases it. If the other replica does not notice, the lock stays free.
func (w *worker) couple(ctx context.Context) {
	w.coupled++
	key := fmt.Sprintf("round%d-couple%d-%d", w.history.now()/roundLength, w.number, w.coupled)
	first := w.operation(acquire, key, lock.NewOwner())
	first.ttl = longTTL
	second := w.operation(acquire, key, lock.NewOwner())
	second.replica = (first.replica + 1 + w.random.IntN(len(w.replicas)-1)) % len(w.replicas)
	second.ttl, second.wait = longTTL, between(w.random, 5*time.Second, 15*time.Second).Truncate(time.Millisecond)
	first = w.do(ctx, first)
	if first.outcome == done {
		var waiting sync.WaitGroup
		waiting.Go(func() { second = w.do(ctx, second) })
		pause(ctx, between(w.random, 50*time.Millisecond, 800*time.Millisecond))
		w.release(ctx, first)
		waiting.Wait()
		if second.outcome == done {
			w.release(ctx, second)
		}
	}
}

func (w *worker) shortTTL() time.Duration {
	return between(w.random, minShortTTL, maxShortTTL).Truncate(time.Millisecond)
}

func (w *worker) upTo(most time.Duration) time.Duration {
	return between(w.random, 0, most).Truncate(time.Millisecond)
}

// hangUp closes the connection before the answer, unless the answer comes first.
func (w *worker) hangUp(ctx context.Context, asked operation) {
	asked.ttl = hungUpTTL
	ctx, cancel := context.WithTimeout(ctx, w.upTo(max(20*time.Millisecond, asked.wait/2)))
	defer cancel()
	if got := w.do(ctx, asked); got.outcome == done {
		w.release(context.WithoutCancel(ctx), got)
	}
}

// hold keeps the lock for a while, and ends it in one of the ways of real clients.
func (w *worker) hold(ctx context.Context, got operation) {
	ttl := min(got.ttl, maxShortTTL)
	pause(ctx, w.upTo(ttl/3))
	for w.chance(w.load.renewals) {
		renewal := w.operation(renew, got.key, got.owner)
		renewal.ttl = w.shortTTL()
		if got.ttl == longTTL && w.chance(0.5) {
			renewal.ttl = longTTL
		}
		got.ttl = renewal.ttl
		w.do(ctx, renewal)
		pause(ctx, w.upTo(ttl/3))
	}
	if w.chance(0.1) {
		w.do(ctx, w.operation(status, got.key, ""))
	}
	if w.thief != nil && w.chance(0.2) {
		theft := w.operation(release, got.key, "thief-"+got.owner)
		if w.chance(0.5) {
			theft.kind, theft.ttl = renew, w.shortTTL()
		}
		theft.proof = got.owner
		w.thief.do(ctx, theft)
	}
	if got.ttl != longTTL && w.chance(w.load.overslept) {
		pause(ctx, w.upTo(maxShortTTL+500*time.Millisecond))
		switch {
		case w.chance(w.load.renewals):
			late := w.operation(renew, got.key, got.owner)
			late.ttl = w.shortTTL()
			w.do(ctx, late)
		case w.chance(0.5):
			return
		}
	}
	var other sync.WaitGroup
	if w.chance(w.load.twice) { // As a program and what supervises it may.
		again := w.operation(release, got.key, got.owner)
		other.Go(func() { w.do(ctx, again) })
	}
	w.release(ctx, got)
	other.Wait()
	if w.chance(0.1) {
		w.do(ctx, w.operation(release, got.key, got.owner))
	}
}

// release retries until the outcome is known, as a careful client does.
func (w *worker) release(ctx context.Context, got operation) {
	for range 20 {
		asked := w.operation(release, got.key, got.owner)
		asked.keepsToken = got.hungUp
		if w.do(ctx, asked).outcome != unanswered || !pause(ctx, w.upTo(500*time.Millisecond)) {
			return
		}
	}
}
