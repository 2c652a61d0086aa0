package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// scale are the scenarios of the suite scale.
var scale = []scenario{
	{"renewing holders", renewals},
	{"live locks", liveLocks}, // last, since its locks stay
}

const (
	renewingHolders = 10_000
	renewedTTL      = 30 * time.Second
	// renewEvery is the interval of the SDK: a third of the ttl.
	renewEvery = renewedTTL / 3
	// renewRounds is how often they renew: long enough for a lock that is not renewed to be lost.
	renewRounds = 6
	// renewConnections is how many connections the holders share.
	renewConnections = 64
	// fewestHolders is where to give up.
	fewestHolders = 500
	// maxSlowdown is how many times longer an acquire may take beside them.
	maxSlowdown = 2

	// boundedLocks is the number of live locks that bounds are about.
	boundedLocks = 100_000
	// restFor is how long memory gets to settle: Go collects garbage at least every two minutes, and returns memory to the
	// system later.
	restFor = 150 * time.Second
	// storedBytes is the name of what etcd has stored, among those of programs.
	storedBytes = "stored"
)

// renewals lets many holders renew their locks, and measures acquires beside them: half as many if locks are lost or the
// acquires take too long.
func renewals(b *bench) {
	c := comparison{name: "acquire, no renewals", clients: 1, rounds: 20, slice: 500 * time.Millisecond}
	c.contenders = []contender{b.facade.locks(facadeName, 0)}
	alone := b.compare(c)[0]
	b.add(alone)
	p99 := func(of *result) float64 { return milliseconds(quantile(of.total.acquires, 0.99)) }
	most := min(renewingHolders, max(1, b.options.liveLocks/10))
	for holders := most; holders == most || holders >= fewestHolders; holders /= 2 {
		n := renewBeside(b, holders)
		slowdown, lost := p99(n.beside)/p99(alone), n.lost.Load()
		single := func(value float64) spread { return single(value, n.disturbance) }
		b.add(n.beside)
		b.judge(n.beside,
			atMost("locks lost", single(float64(lost)), 0, "").when(holders == most),
			atMost("acquire p99 beside / alone", single(slowdown), maxSlowdown, "").when(holders == most),
			noted("renewals/s", single(float64(n.renewed.Load())/n.took.Seconds()), ""),
			noted("API server processor time per renewal", single(n.perRenewal[apiServerProgram]), " ms"),
			noted("operator processor time per renewal", single(n.perRenewal[operatorProgram]), " ms"))
		if lost == 0 && slowdown <= maxSlowdown {
			return
		}
	}
}

// renewing is the measurement of holders that renew.
type renewing struct {
	holders int
	// renewed is how many renewals succeeded, lost how many found that the lock was lost.
	renewed, lost atomic.Int64
	took          time.Duration
	// perRenewal is the processor time of programs in milliseconds, of the second round of renewals, in which no one acquires.
	// In the first one, the façade reads each lock, which it did not grant.
	perRenewal  map[string]float64
	beside      *result
	disturbance string
}

func (n *renewing) key(holder int) string { return fmt.Sprintf("renewed%d-%d", n.holders, holder) }

// renewBeside creates the locks of the holders, renews them, and measures acquires meanwhile.
func renewBeside(b *bench, holders int) *renewing {
	n := &renewing{holders: holders, perRenewal: map[string]float64{}}
	// The first ones must last until all are created.
	b.fill(fmt.Sprintf("renewed%d", holders), holders, renewedTTL, time.Now().Add(renewedTTL+time.Duration(holders)*time.Second/100))
	started := time.Now()
	n.disturbance = b.machine.during(func() {
		ended := make(chan error, 1)
		go func() { ended <- n.renew(b, b.facade, started) }()
		defer func() { check(<-ended) }()
		check(waitUntil(b, started.Add(renewEvery)))
		before, renewedBefore := cpuTimes(b.pids), n.renewed.Load()
		check(waitUntil(b, started.Add(2*renewEvery)))
		for program, used := range cpuTimes(b.pids) {
			n.perRenewal[program] = milliseconds(used-before[program]) / float64(n.renewed.Load()-renewedBefore)
		}
		const slice = 500 * time.Millisecond
		n.beside = b.compare(comparison{
			name: fmt.Sprintf("acquire beside %d renewing holders", holders), clients: 1, slice: slice,
			rounds: int((renewRounds - 3) * renewEvery / slice), contenders: []contender{b.facade.locks(facadeName, 0)},
		})[0]
	})
	n.took = time.Since(started)
	return n
}

// renew renews the locks of all holders a few times. They take turns evenly in time.
func (n *renewing) renew(ctx context.Context, f facade, started time.Time) error {
	return inParallel(ctx, renewConnections, min(renewConnections, n.holders), func(ctx context.Context, first int) error {
		connection, err := f.dial(ctx, first)
		if err != nil {
			return err
		}
		defer connection.hangUp()
		lost := map[int]bool{}
		for due := range renewRounds {
			for holder := first; holder < n.holders; holder += renewConnections {
				at := time.Duration(due)*renewEvery + renewEvery*time.Duration(holder)/time.Duration(n.holders)
				if err := waitUntil(ctx, started.Add(at)); err != nil {
					return err
				}
				isRenewed := false
				// Twice, as the SDK does: the answer may have been that the service is not available for the moment.
				for attempt := 0; attempt < 2 && !isRenewed && !lost[holder]; attempt++ {
					answer, err := connection.do(ctx, http.MethodPost, "/forrst", "", renewCall(n.key(holder), ownerOf(holder)))
					if err != nil {
						return err
					}
					isRenewed = bytes.Contains(answer, []byte(`"renewed":true`))
				}
				switch {
				case isRenewed:
					n.renewed.Add(1)
				case !lost[holder]:
					lost[holder] = true
					n.lost.Add(1)
				}
			}
		}
		return nil
	})
}

// liveLocks measures with very many live locks: 100,000, if there are to be so many, and all of them.
func liveLocks(b *bench) {
	// The cluster without locks takes turns with the other one, so a machine that becomes slower or quicker meanwhile makes no
	// difference.
	empty := b.startCluster(b.options.root)
	none := b.sizes()
	bounded, held := min(boundedLocks, b.options.liveLocks), 0
	for _, size := range slices.Compact([]int{bounded, b.options.liveLocks}) {
		b.fill(fmt.Sprintf("live-%d", size), size-held, lockTTL, time.Now().Add(24*time.Hour))
		held = size
		measureWith(b, empty, none, size, size == bounded)
	}
}

// sizes returns the resident memory of the cluster's programs when they are idle, and what etcd has stored, in KiB.
func (b *bench) sizes() map[string]float64 {
	awaitIdle(b, b.pids[apiServerProgram], b.pids[operatorProgram])
	check(waitUntil(b, time.Now().Add(time.Duration(min(1, b.options.effort)*float64(restFor)))))
	status := must(b.etcd.Status(b, b.etcd.Endpoints()[0]))
	kib := map[string]float64{storedBytes: float64(status.DbSizeInUse) / 1024}
	for program, pid := range b.pids {
		kib[program] = kibibytes(pid, resident)
	}
	return kib
}

// measureWith measures with so many locks. None are the sizes without any.
func measureWith(b *bench, empty *cluster, none map[string]float64, size int, isBounded bool) {
	with := b.sizes()
	without := empty.facade.locks("façade, no live locks", 0)
	without.at = empty
	name := fmt.Sprintf("%d live locks", size)
	results := b.compare(comparison{
		name: name, clients: 1, rounds: 20, slice: 500 * time.Millisecond, contenders: []contender{without, b.facade.locks(facadeName, 0)},
	})
	var start replicaStart
	var beside measurement
	disturbance := b.machine.during(func() {
		beside = b.beside(func() { b.within(func(b *bench) { start = b.measureStart() }) })
	})
	single := func(value float64) spread { return single(value, disturbance) }
	// What else uses the machine does not change it.
	perLock := func(what string) spread { return samples([]float64{(with[what] - none[what]) / float64(size)}, "") }
	b.add(results...)
	b.judge(results[1],
		atMost("acquire p50 / without", ratio(acquireTime, results[1], results[0]), 1.1, "").when(isBounded),
		atMost("operator's memory per lock", perLock(operatorProgram), 2, " KiB").when(isBounded),
		noted("API server's memory per lock", perLock(apiServerProgram), " KiB"),
		noted("etcd's memory per lock", perLock(etcdProgram), " KiB"),
		noted("stored by etcd per lock", perLock(storedBytes), " KiB"))
	b.note(name, "a replica that starts",
		atMost("ready", single(start.ready.Seconds()), 5, " s").when(isBounded),
		atMost("first acquire that does not wait", single(start.firstAcquire.Seconds()), 1, " s").when(isBounded),
		noted("all locks in its cache", single(start.full.Seconds()), " s"),
		noted("its processor time", single(start.processor.Seconds()), " s"),
		noted("its largest memory", single(start.peak/1024), " MiB"),
		noted("acquire p50 through another replica meanwhile", single(milliseconds(quantile(beside.acquires, 0.5))), " ms"),
		noted("acquire p99 through another replica meanwhile", single(milliseconds(quantile(beside.acquires, 0.99))), " ms"))
}
