package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// fault breaks something, waits, and repairs it before it returns, also if ctx ends.
type fault struct {
	name string
	// lasting is how long its effects go on after the repair.
	lasting time.Duration
	inject  func(ctx context.Context, c *cluster, random *rand.Rand) error
}

// allFaults are the faults of a run, in no particular order.
var allFaults = []fault{killAPIServer, stopReplica, resetConnections, blackHole, loseReplies, delayRequests, stepForward, stepBack}

var killAPIServer = fault{"kill the API server", 0, func(ctx context.Context, c *cluster, random *rand.Rand) error {
	if err := c.environment.KillAPIServer(); err != nil {
		return err
	}
	pause(ctx, between(random, 300*time.Millisecond, 1500*time.Millisecond))
	var err error
	for range 3 { // A busy machine may need more than envtest's 20 s.
		if err = c.environment.StartAPIServer(); err == nil {
			return nil
		}
	}
	return err
}}

// stopReplica stops a replica for longer than any of the short ttls.
var stopReplica = fault{"stop a replica", 0, func(ctx context.Context, c *cluster, random *rand.Rand) error {
	stopped := c.replicas[random.IntN(len(c.replicas))]
	if err := stopped.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, between(random, maxShortTTL+500*time.Millisecond, maxShortTTL+1500*time.Millisecond))
	return stopped.signal(syscall.SIGCONT)
}}

var resetConnections = fault{"reset connections", 0, func(ctx context.Context, c *cluster, random *rand.Rand) error {
	for range 1 + random.IntN(5) {
		c.proxies[random.IntN(len(c.proxies))].connections.reset()
		pause(ctx, between(random, 10*time.Millisecond, 300*time.Millisecond))
	}
	return nil
}}

var blackHole = fault{"swallow traffic", 0, func(ctx context.Context, c *cluster, random *rand.Rand) error {
	connections := c.proxies[random.IntN(len(c.proxies))].connections
	connections.swallow()
	pause(ctx, between(random, time.Second, 3*time.Second))
	if random.IntN(2) == 0 {
		connections.reset()
	}
	connections.resume()
	return nil
}}

var (
	loseReplies   = doom("lose requests and replies", 0, lostRequest, lostReply, lostReply, timedOutReply)
	delayRequests = doom("delay requests and replies", maxLate, lateRequest, lateReply)
	// writeLate is the half of it that leaves most grants behind.
	writeLate = doom("delay requests", maxLate, lateRequest)
)

func doom(name string, lasting time.Duration, fates ...fate) fault {
	return fault{name, lasting, func(ctx context.Context, c *cluster, random *rand.Rand) error {
		doomed := c.proxies
		if random.IntN(2) == 0 {
			doomed = doomed[random.IntN(len(doomed)):][:1]
		}
		for _, proxy := range doomed {
			proxy.doom(fates...)
		}
		pause(ctx, between(random, 1500*time.Millisecond, 3*time.Second))
		for _, proxy := range doomed {
			proxy.doom()
		}
		return nil
	}}
}

var (
	stepForward = stepClock("step a clock forward", time.Hour)
	stepBack    = stepClock("step a clock back", -time.Hour)
)

func stepClock(name string, ahead time.Duration) fault {
	return fault{name, 0, func(ctx context.Context, c *cluster, random *rand.Rand) error {
		stepped := c.replicas[random.IntN(len(c.replicas))]
		if err := stepped.stepClock(ahead); err != nil {
			return err
		}
		pause(ctx, between(random, 2*time.Second, 4*time.Second))
		return stepped.stepClock(0)
	}}
}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

// injectFaults repeats the faults in random order until ctx ends, with a rest after each
// round.
func (c *cluster) injectFaults(ctx context.Context, faults []fault, rest time.Duration, random *rand.Rand, log func(string, ...any)) error {
	for len(faults) > 0 {
		for _, position := range random.Perm(len(faults)) {
			if !pause(ctx, between(random, 200*time.Millisecond, 800*time.Millisecond)) {
				return nil
			}
			fault := faults[position]
			from := c.history.now()
			err := fault.inject(ctx, c, random)
			to := c.history.now()
			c.history.addFault(window{fault.name, from, to + fault.lasting})
			log("%8s to %8s: %s", from.Round(time.Millisecond), to.Round(time.Millisecond), fault.name)
			if err != nil {
				return fmt.Errorf("%s: %w", fault.name, err)
			}
		}
		if !pause(ctx, rest) {
			return nil
		}
	}
	return nil
}
