//go:build !race

package line_test

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// maxFault is how long a fault lasts at most, and the pause before the next.
	maxFault = 2500 * time.Millisecond
	// maxStep is by how much a wall clock is wrong at most, and maxPause how long a machine stands still.
	maxStep, maxPause = 8 * time.Second, 6 * time.Second
	// maxFilling is how long the watch of a new replica takes to show what there is.
	maxFilling = time.Second
	// maxDraining is how long a replica drains before it stops.
	maxDraining = 2 * time.Second
)

// fault is what happens to a replica for a while.
type fault func(number int, length time.Duration)

func (c *chaos) faults() []fault {
	all := []fault{
		c.breaks(func(at *replica) *atomic.Bool { return &at.isSilent }), c.breaks(func(at *replica) *atomic.Bool { return &at.isMute }),
		c.breaks(func(at *replica) *atomic.Bool { return &at.isDeaf }), c.breaks(func(at *replica) *atomic.Bool { return &at.isDead }),
		c.slows,
	}
	if c.isMistimed {
		all = append(all, c.stepsItsWallClock, c.standsStill)
	}
	if c.isMortal {
		all = append(all, c.dies, c.leaves)
	}
	return all
}

// breakThings does one thing to one replica after the other, for a while.
func (c *chaos) breakThings() {
	faults := c.faults()
	for time.Now().Before(c.until) {
		<-time.After(c.upTo(maxFault))
		faults[c.number(len(faults))](c.number(chaosReplicas), c.upTo(maxFault))
	}
}

func (c *chaos) breaks(what func(*replica) *atomic.Bool) fault {
	return func(number int, length time.Duration) {
		at := c.at(number)
		what(at).Store(true)
		<-time.After(length)
		what(at).Store(false)
	}
}

func (c *chaos) slows(number int, length time.Duration) {
	at, verbs := c.at(number), []string{"create", "update", "delete", "get"}
	at.slow(verbs[c.number(len(verbs))], c.upTo(1500*time.Millisecond))
	<-time.After(length)
	at.before.Store(nil)
}

// either is a length with one sign or the other.
func (c *chaos) either(length time.Duration) time.Duration {
	if c.number(2) == 0 {
		return -length
	}
	return length
}

// stepsItsWallClock changes no time by which a replica decides.
func (c *chaos) stepsItsWallClock(number int, length time.Duration) {
	of := c.clocks[nameOfReplica(number)]
	of.stepped.Store(int64(c.either(c.upTo(maxStep))))
	<-time.After(length)
	of.stepped.Store(0)
}

// standsStill leaves a clock behind, as a pause of its machine does that the clock has not noticed. The next answer
// corrects it.
func (c *chaos) standsStill(number int, _ time.Duration) {
	c.clocks[nameOfReplica(number)].ahead.Add(-int64(c.upTo(maxPause)))
}

// dies ends a replica in the middle of what it does, and begins it anew.
func (c *chaos) dies(number int, length time.Duration) {
	at := c.at(number)
	at.isKilled.Store(true)
	at.isDead.Store(true)
	c.ending.Go(at.kill)
	<-time.After(length)
	c.begin(number)
}

// leaves ends a replica that has moved its callers elsewhere, and begins it anew. The others may hear that it has gone.
func (c *chaos) leaves(number int, length time.Duration) {
	at, name := c.at(number), nameOfReplica(number)
	isForgotten, isForgottenFirst := c.number(2) == 0, c.number(2) == 0
	if isForgotten && isForgottenFirst {
		at.forgets(name)
		c.forget(name)
		<-time.After(c.upTo(maxDraining))
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), maxDraining)
	at.Drain(ctx)
	cancel()
	if isForgotten && !isForgottenFirst {
		c.forget(name)
	}
	c.ending.Go(at.stop)
	<-time.After(length)
	c.begin(number)
	if isForgotten {
		c.forget("")
	}
}

// forget leaves each of the others with the members that do not have the name.
func (c *chaos) forget(name string) {
	for number := range chaosReplicas {
		if nameOfReplica(number) != name {
			c.at(number).forgets(name)
		}
	}
}

// begin begins a replica that knows nothing.
func (c *chaos) begin(number int) {
	c.filling = time.Millisecond + c.upTo(maxFilling)
	c.add(nameOfReplica(number), c.delays[number])
	c.present[number].Store(c.all[nameOfReplica(number)])
	c.join(number)
}

// join connects a replica with the others.
func (c *chaos) join(number int) {
	at, fates := c.at(number), c.fate
	at.fates.Store(&fates)
	at.knows(c.members(), func(name string) *replica { return c.at(slices.Index(c.names(), name)) })
}
