package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"forrst.dev/lock-operator/test/support/testenv"
)

// fault breaks something, waits, and repairs it before it returns, also if ctx ends.
type fault struct {
	name string
	// lasting is how long its effects go on after the repair.
	lasting time.Duration
	// breaks is what it breaks. Faults that break the same thing do not overlap. "each"
	// means one replica, which inject is given; all else is there once.
	breaks string
	inject func(ctx context.Context, b breaking) error
}

// breaking is what a fault works on.
type breaking struct {
	*cluster

	// number is that of the replica to break.
	number int
	random *rand.Rand
	// isLong allows for faults of minutes.
	isLong bool
}

func (b breaking) replica() *replica { return b.replicas[b.number] }

func (b breaking) proxy() *proxy { return b.proxies[b.number] }

// pause waits between the two. The end of ctx ends the fault.
func (b breaking) pause(ctx context.Context, low, high time.Duration) {
	pause(ctx, between(b.random, low, high))
}

// minutes waits for 45 to 120 seconds, and in short runs for a tenth of that.
func (b breaking) minutes(ctx context.Context) {
	length := between(b.random, 45*time.Second, 120*time.Second)
	if !b.isLong {
		length /= 10
	}
	pause(ctx, length)
}

const (
	eachProcess  = "process of each"
	eachRequests = "requests of each"
	// allRequests is eachRequests of all replicas.
	allRequests  = "requests"
	eachWatch    = "watch of each"
	eachNetwork  = "network of each"
	eachClock    = "clock of each"
	leading      = "process of the leader"
	allProcesses = "processes"
	apiServer    = "API server"
	etcd         = "etcd"
)

// allFaults are the faults of a run, in no particular order.
var allFaults = []fault{
	killAPIServer, stopReplica, killReplica, killLeader, rollReplicas,
	resetConnections, blackHole, oneWay, halfOpen, refuseConnections, partition,
	loseReplies, delayRequests, repeatUpdates, repeatDeletes, tooMany, brokenWebhook, quota, terminating,
	cutWatch, stallWatch, delayWatch, loseDeletes,
	stepForward, stepBack, stepLittle, drift,
	killEtcd, freezeEtcd, slowEtcd, compactEtcd, fillEtcd,
	suspendReplica, stopHolder, suspendHolder,
}

// killAPIServer kills one of the two; the replicas of the other go on.
var killAPIServer = fault{"kill an API server", 0, apiServer, func(ctx context.Context, b breaking) error {
	killed := b.apiServers[b.random.IntN(len(b.apiServers))]
	if err := killed.Kill(); err != nil {
		return err
	}
	b.pause(ctx, 300*time.Millisecond, 1500*time.Millisecond)
	return startAPIServer(killed)
}}

func startAPIServer(killed *testenv.APIServer) (err error) {
	for range 3 { // A busy machine may need more than a minute.
		if err = killed.Start(); err == nil {
			return nil
		}
	}
	return err
}

var (
	stopReplica = freezingReplica("stop a replica", false)
	// suspendReplica leaves its clock behind until the next answer of the API server. Timers and
	// tickers do not stand still.
	suspendReplica = freezingReplica("suspend the machine of a replica", true)
)

// freezingReplica stops a replica for longer than any of the short ttls.
func freezingReplica(name string, suspend bool) fault {
	return fault{name, 0, eachProcess, func(ctx context.Context, b breaking) error {
		from := time.Now()
		defer func() { b.replica().path.broke(from, time.Now()) }()
		return b.replica().freeze(ctx, suspend, between(b.random, maxShortTTL+500*time.Millisecond, maxShortTTL+1500*time.Millisecond))
	}}
}

var killReplica = fault{"kill a replica", 0, eachProcess, func(ctx context.Context, b breaking) error {
	return b.restart(ctx, b.number)
}}

// killLeader kills the replica that leads, or the first if none says that it does.
var killLeader = fault{"kill the leader", 0, leading, func(ctx context.Context, b breaking) error {
	return b.restart(ctx, b.number)
}}

var rollReplicas = fault{"restart all replicas in turn", 0, allProcesses, func(ctx context.Context, b breaking) error {
	for number := range b.replicas {
		if err := b.restart(ctx, number); err != nil {
			return err
		}
		b.pause(ctx, time.Second, 3*time.Second)
	}
	return nil
}}

// restart kills a process and starts another, again and again like a kubelet: it may not
// start without an API server.
func (b breaking) restart(ctx context.Context, number int) error {
	restarted, from := b.replicas[number], time.Now()
	defer func() { restarted.path.died(from, time.Now()) }()
	if err := restarted.kill(); err != nil {
		return err
	}
	b.pause(ctx, 100*time.Millisecond, 2*time.Second)
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	for {
		err := restarted.start()
		if err == nil || !pause(starting, time.Second) {
			return err
		}
	}
}

// killEtcd loses nothing that etcd has confirmed: the data stays in the page cache.
var killEtcd = fault{"kill etcd", 0, etcd, func(ctx context.Context, b breaking) error {
	if err := b.environment.KillEtcd(); err != nil {
		return err
	}
	b.pause(ctx, 100*time.Millisecond, 2*time.Second)
	return b.environment.StartEtcd()
}}

var freezeEtcd = fault{"freeze etcd", 0, etcd, func(ctx context.Context, b breaking) error {
	if err := b.environment.PauseEtcd(); err != nil {
		return err
	}
	b.pause(ctx, time.Second, 8*time.Second)
	return b.environment.ResumeEtcd()
}}

// slowEtcd stops etcd for most of the time, as a disk does that is slow to sync.
var slowEtcd = fault{"slow etcd", 0, etcd, func(ctx context.Context, b breaking) error {
	until := time.Now().Add(between(b.random, 2*time.Second, 6*time.Second))
	for time.Now().Before(until) && ctx.Err() == nil {
		if err := b.environment.PauseEtcd(); err != nil {
			return err
		}
		b.pause(ctx, 20*time.Millisecond, 200*time.Millisecond)
		if err := b.environment.ResumeEtcd(); err != nil {
			return err
		}
		b.pause(ctx, 5*time.Millisecond, 20*time.Millisecond)
	}
	return nil
}}

// compactEtcd makes every watch too old to go on: all informers list again.
var compactEtcd = fault{"compact etcd and kill both API servers", 0, apiServer, func(ctx context.Context, b breaking) error {
	// Another fault may have etcd; then all informers list again as well.
	_ = b.journal.compact(ctx)
	for _, each := range b.apiServers {
		if err := each.Kill(); err != nil {
			return err
		}
	}
	for _, each := range b.apiServers {
		if err := startAPIServer(each); err != nil {
			return err
		}
	}
	return nil
}}

// fillEtcd raises the alarm that etcd raises when it is out of space. Deletes go on.
var fillEtcd = fault{"fill etcd", 0, etcd, func(ctx context.Context, b breaking) error {
	if err := b.journal.setSpace(ctx, false); err != nil {
		return err
	}
	b.pause(ctx, time.Second, 5*time.Second)
	return b.journal.setSpace(context.WithoutCancel(ctx), true)
}}

var resetConnections = fault{"reset connections", 0, eachNetwork, func(ctx context.Context, b breaking) error {
	for range 1 + b.random.IntN(5) {
		b.proxy().reset()
		b.pause(ctx, 10*time.Millisecond, 300*time.Millisecond)
	}
	return nil
}}

// reset resets the connections of the replica.
func (p *proxy) reset() {
	now := time.Now()
	p.connections.reset()
	p.path.broke(now, now)
}

// hole lets nothing pass in these directions, and delivers it afterwards or resets the
// connections.
func hole(name string, directions holes, length func(ctx context.Context, b breaking)) fault {
	return fault{name, 0, eachNetwork, func(ctx context.Context, b breaking) error {
		from := time.Now()
		defer func() { b.proxy().path.broke(from, time.Now()) }()
		b.proxy().connections.swallow(directions)
		length(ctx, b)
		if b.random.IntN(2) == 0 {
			b.proxy().connections.reset()
		}
		b.proxy().connections.swallow(holes{})
		return nil
	}}
}

var (
	blackHole = hole("swallow traffic", holes{in: true, out: true}, seconds)
	oneWay    = hole("swallow answers", holes{out: true}, seconds)
	partition = hole("partition for long", holes{in: true, out: true}, func(ctx context.Context, b breaking) { b.minutes(ctx) })
)

func seconds(ctx context.Context, b breaking) { b.pause(ctx, time.Second, 3*time.Second) }

// halfOpen loses the present connections without a word. The probes share the connection
// with the product and say when requests get through again.
var halfOpen = fault{"leave connections half open", 0, eachNetwork, func(ctx context.Context, b breaking) error {
	b.proxy().connections.abandon()
	if b.isLong {
		b.minutes(ctx)
	} else {
		b.pause(ctx, 3*time.Second, 5*time.Second)
	}
	b.proxy().reset()
	return nil
}}

// refuseConnections takes the listener away. client-go does not repeat a refused request,
// and its watches back off.
var refuseConnections = fault{"refuse connections", 0, eachNetwork, func(ctx context.Context, b breaking) error {
	from := time.Now()
	defer func() { b.proxy().path.broke(from, time.Now()) }()
	if err := b.proxy().connections.refuse(); err != nil {
		return err
	}
	b.proxy().connections.reset()
	if b.isLong {
		b.pause(ctx, 10*time.Second, 60*time.Second)
	} else {
		b.pause(ctx, 2*time.Second, 5*time.Second)
	}
	return b.proxy().connections.listen(context.WithoutCancel(ctx))
}}

var (
	loseReplies   = dooming("lose requests and replies", 0, 0.5, lostRequest, lostReply, lostReply, timedOutReply)
	delayRequests = dooming("delay requests and replies", maxLate, 0.5, lateRequest, lateReply)
	// writeLate is the half of it that leaves most grants behind.
	writeLate     = dooming("delay requests", maxLate, 0.5, lateRequest)
	repeatUpdates = dooming("repeat updates", 0, 0.5, repeatedUpdate)
	repeatDeletes = dooming("repeat deletes", 0, 0.5, repeatedDelete)
	tooMany       = dooming("429", 0, 0.5, tooManyRequests)
	brokenWebhook = dooming("500 from a webhook", 0, 0.8, failedWebhook)
	terminating   = dooming("a terminating namespace", 0, 1, endingNamespace)
)

// quota is that of the namespace, so all replicas meet it: one of them waits for its end on behalf of all callers in
// a line.
var quota = fault{"403 by quota", 0, allRequests, func(ctx context.Context, b breaking) error {
	for _, proxy := range b.proxies {
		proxy.setDoom(doom{1, []fate{exceededQuota}})
	}
	b.pause(ctx, 1500*time.Millisecond, 3*time.Second)
	for _, proxy := range b.proxies {
		proxy.setDoom(doom{})
	}
	return nil
}}

func dooming(name string, lasting time.Duration, share float64, fates ...fate) fault {
	return fault{name, lasting, eachRequests, func(ctx context.Context, b breaking) error {
		b.proxy().setDoom(doom{share, fates})
		b.pause(ctx, 1500*time.Millisecond, 3*time.Second)
		b.proxy().setDoom(doom{})
		return nil
	}}
}

// All other requests get through during faults of watches.

// cutWatch ends the watches, and refuses new ones for a while.
var cutWatch = fault{"cut the watch", 0, eachWatch, func(ctx context.Context, b breaking) error {
	b.proxy().watches.change(func(w *watches) { w.refused = true })
	b.proxy().watches.cut()
	if b.random.IntN(2) == 0 {
		b.minutes(ctx)
	} else {
		seconds(ctx, b)
	}
	b.proxy().watches.change(func(w *watches) { w.refused = false })
	return nil
}}

// stallWatch holds all events back. Then they arrive, or are lost with their connection.
var stallWatch = fault{"stall the watch", 0, eachWatch, func(ctx context.Context, b breaking) error {
	b.proxy().watches.change(func(w *watches) { w.stalled = true })
	b.minutes(ctx)
	if b.random.IntN(2) == 0 {
		b.proxy().watches.cut()
	}
	b.proxy().watches.change(func(w *watches) { w.stalled = false })
	return nil
}}

// delayWatch is the lag of an API server of its own.
var delayWatch = fault{"delay the watch", 0, eachWatch, func(ctx context.Context, b breaking) error {
	lag := between(b.random, 100*time.Millisecond, 5*time.Second)
	b.proxy().watches.change(func(w *watches) { w.lag = lag })
	b.pause(ctx, 5*time.Second, 10*time.Second)
	b.proxy().watches.change(func(w *watches) { w.lag = 0 })
	return nil
}}

// loseDeletes drops deletes; nothing tells the replica, then or later.
var loseDeletes = fault{"lose deletes in the watch", 0, eachWatch, func(ctx context.Context, b breaking) error {
	b.proxy().watches.change(func(w *watches) { w.losing = true })
	b.pause(ctx, time.Second, 4*time.Second)
	b.proxy().watches.change(func(w *watches) { w.losing = false })
	return nil
}}

var (
	stepForward = stepClock("step a clock forward", time.Hour)
	stepBack    = stepClock("step a clock back", -time.Hour)
)

func stepClock(name string, by time.Duration) fault {
	return fault{name, 0, eachClock, func(ctx context.Context, b breaking) error {
		b.tell("step " + by.String())
		b.pause(ctx, 2*time.Second, 4*time.Second)
		b.tell("step " + (-by).String())
		return nil
	}}
}

// tell changes a clock. A process that ends meanwhile takes its clock with it.
func (b breaking) tell(command string) { _ = b.replica().tell(command) }

// stepLittle leaves a clock behind, as after a pause of the machine that none of its clocks
// noticed, and does not set it right: a clock that jumps ahead by seconds does not exist,
// since the readings of real clocks have a monotonic part.
var stepLittle = fault{"leave a clock behind", 0, eachClock, func(ctx context.Context, b breaking) error {
	b.tell("pause " + between(b.random, time.Second, 6*time.Second).String())
	b.pause(ctx, time.Second, 3*time.Second)
	return nil
}}

// drift makes a clock run 1 % too fast or too slowly.
var drift = fault{"let a clock drift", 0, eachClock, func(ctx context.Context, b breaking) error {
	b.tell(fmt.Sprintf("drift %d", 1-2*b.random.IntN(2)))
	b.pause(ctx, 5*time.Second, 10*time.Second)
	b.tell("drift 0")
	return nil
}}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

// reservations keep faults apart that break the same thing.
type reservations struct {
	mu    sync.Mutex
	taken map[string]bool
}

// errTaken says that another fault is breaking the same.
var errTaken = errors.New("another fault breaks it already")

// reserve chooses what the fault breaks.
func (c *cluster) reserve(fault fault, random *rand.Rand) (number int, free func(), err error) {
	number = random.IntN(len(c.replicas))
	names := []string{fault.breaks}
	processOf := func(number int) string { return fmt.Sprintf("%s %d", eachProcess, number) }
	allOf := func(each string) (names []string) {
		for number := range c.replicas {
			names = append(names, fmt.Sprintf("%s %d", each, number))
		}
		return names
	}
	switch {
	case fault.breaks == leading:
		for candidate, replica := range c.replicas {
			if replica.path.leads() {
				number = candidate
			}
		}
		names[0] = processOf(number)
	case fault.breaks == allProcesses:
		names = allOf(eachProcess)
	case fault.breaks == allRequests:
		names = allOf(eachRequests)
	case strings.HasSuffix(fault.breaks, "of each"):
		names[0] = fmt.Sprintf("%s %d", fault.breaks, number)
	}
	r := &c.reservations
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if r.taken[name] {
			return 0, nil, errTaken
		}
	}
	for _, name := range names {
		r.taken[name] = true
	}
	return number, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range names {
			delete(r.taken, name)
		}
	}, nil
}

// injectFaults repeats the faults in random order until ctx ends, so many at a time, with a
// rest after each round.
func (c *cluster) injectFaults(ctx context.Context, options options, log func(string, ...any)) error {
	for round := uint64(0); len(options.faults) > 0; round++ {
		order := rand.New(rand.NewPCG(options.seed, 1000+round*100)).Perm(len(options.faults))
		var lanes sync.WaitGroup
		errs := make([]error, options.lanes)
		for lane := range options.lanes {
			random := rand.New(rand.NewPCG(options.seed, 1001+round*100+uint64(lane)))
			share := order[len(order)*lane/options.lanes : len(order)*(lane+1)/options.lanes]
			lanes.Go(func() { errs[lane] = c.injectInTurn(ctx, options, share, random, log) })
		}
		lanes.Wait()
		if err := errors.Join(errs...); err != nil || !pause(ctx, options.rest) {
			return err
		}
	}
	return nil
}

// injectOnce injects each fault in the order in which they are listed.
func (c *cluster) injectOnce(ctx context.Context, options options, log func(string, ...any)) error {
	order := make([]int, len(options.faults))
	for position := range order {
		order[position] = position
	}
	return c.injectInTurn(ctx, options, order, rand.New(rand.NewPCG(options.seed, 1000)), log)
}

func (c *cluster) injectInTurn(ctx context.Context, options options, order []int, random *rand.Rand, log func(string, ...any)) error {
	for _, position := range order {
		if !pause(ctx, between(random, 200*time.Millisecond, 800*time.Millisecond)) {
			return nil
		}
		fault := options.faults[position]
		// The choices of a fault do not depend on how many the faults before have made.
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		number, free, err := c.reserve(fault, own)
		if err != nil {
			continue
		}
		from := c.history.now()
		err = fault.inject(ctx, breaking{cluster: c, number: number, random: own, isLong: options.isLong})
		free()
		to := c.history.now()
		c.history.addFault(window{fault.name, number, span{from, to + fault.lasting}})
		log("%8s to %8s: %s (%d)", from.Round(time.Millisecond), to.Round(time.Millisecond), fault.name, number)
		if err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
	}
	return nil
}
