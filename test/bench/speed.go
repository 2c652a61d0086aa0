package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scenario is one part of a run.
type scenario struct {
	name string
	run  func(ctx context.Context, lab *lab, report *report) error
}

// Names of contenders that figures refer to.
const (
	operatorFloor = "floor: create + delete, operator"
	userFloor     = "floor: create + delete, user"
	facadeName    = "façade"
	sdkName       = "SDK"
)

// blockFor is how long callers of the façade wait: the longest wait that it allows, and
// longer than any turn.
const blockFor = time.Minute

// handOffHold is how long a lock is held where hand-offs are timed: long enough for all
// effects of the previous release to end.
const handOffHold = 5 * time.Millisecond

func speedScenarios() []scenario {
	var all []scenario
	for _, clients := range []int{1, 16, 64} {
		all = append(all, scenario{fmt.Sprintf("distinct keys, %d", clients), distinctKeys(clients)})
	}
	all = append(all, scenario{"direct create, 1", directCreates(1)})
	for _, clients := range []int{2, 16, 64} {
		all = append(all, scenario{fmt.Sprintf("hot key, %d", clients), hotKey(clients)})
	}
	for _, clients := range []int{2, 16} {
		all = append(all, scenario{fmt.Sprintf("release to next, %d", clients), releaseToNext(clients)})
	}
	for _, clients := range []int{1, 16} {
		all = append(all,
			scenario{fmt.Sprintf("doors, %d", clients), doors(clients)},
			scenario{fmt.Sprintf("observed, %d", clients), observing(clients)})
	}
	return append(all,
		scenario{"guardable writes", guardableWrites},
		scenario{"writes per hand-off", writesPerHandOff},
		scenario{"ping, 16", pings(16)},
		scenario{"routed call, 1", routedCalls(1)},
		scenario{"routed call, 16", routedCalls(16)},
		scenario{"blocked callers", blocked},
		scenario{"expiry", expiry},
		scenario{"locked jobs", jobsInTurn},
		// Last, since its locks stay.
		scenario{"list", lists},
	)
}

// distinctKeys gives every client its own key.
func distinctKeys(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		c := &comparison{
			name: fmt.Sprintf("distinct keys, %d", clients), clients: clients,
			rounds: l.options.roundsOf(30), slice: 300 * time.Millisecond,
		}
		if clients > 16 {
			// A turn must be several times as long as a cycle.
			c.rounds, c.slice = l.options.roundsOf(8), 800*time.Millisecond
		}
		byOperator, err := newFloor(operatorFloor, l.operator, stampedLock)
		if err != nil {
			return err
		}
		byUser, err := newFloor(userFloor, l.user, declaredLock)
		if err != nil {
			return err
		}
		leases, err := newLeaseLock(l.user, false)
		if err != nil {
			return err
		}
		mutex := newEtcdMutex(l.etcd)
		mutex.isAside, leases.isAside = true, true
		c.contenders = []contender{byOperator, newFacade(l.cluster.facade, 0), mutex, leases}
		redis, err := startRedis(ctx)
		if err != nil && !errors.Is(err, errNoRedis) {
			return err
		}
		if err == nil {
			peer := newRedisLock(redis)
			peer.isAside = true
			c.contenders = append(c.contenders, peer)
		}
		results, err := l.compare(ctx, c)
		if err != nil {
			return err
		}
		sdk, err := newSDK(ctx, l.user)
		if err != nil {
			return err
		}
		// A separate comparison, since the SDK's watch would slow other contenders.
		admitted := *c
		admitted.contenders = []contender{byUser, sdk}
		admittedResults, err := l.compare(ctx, &admitted)
		if err != nil {
			return err
		}
		facade := results[facadeName]
		var figures []figure
		if clients <= 16 {
			figures = append(figures, atLeast("façade / floor", medianRatio(facade.rates, results[operatorFloor].rates), 0.90))
		}
		r.add(results[operatorFloor])
		r.add(facade, figures...)
		bare, admittedSDK := admittedResults[userFloor], admittedResults[sdkName]
		r.add(bare)
		r.add(admittedSDK, atLeast("SDK / floor", medianRatio(admittedSDK.rates, bare.rates), 0.95))
		r.add(results[mutex.name])
		r.add(results[leases.name])
		if redis == nil {
			r.note(c.name, "Redis: "+errNoRedis.Error())
			return nil
		}
		r.add(results[c.contenders[len(c.contenders)-1].name])
		return nil
	}
}

// hotKey lets all clients contend for one key all the time.
func hotKey(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		c := &comparison{
			name: fmt.Sprintf("hot key, %d", clients), clients: clients, isHot: true,
			rounds: l.options.roundsOf(24), slice: 500 * time.Millisecond,
		}
		if clients < 16 {
			c.rounds = l.options.roundsOf(8) // no bound depends on it
		}
		loop, err := newUpdateLoop(l.operator)
		if err != nil {
			return err
		}
		mutex := newEtcdMutex(l.etcd)
		sdk, err := newSDK(ctx, l.user)
		if err != nil {
			return err
		}
		sdk.isAside = true
		c.contenders = []contender{loop, newFacade(l.cluster.facade, blockFor), mutex, sdk}
		results, err := l.compare(ctx, c)
		if err != nil {
			return err
		}
		facade := results[facadeName]
		var figures []figure
		if clients == 16 {
			figures = append(figures, atLeast("façade / etcd mutex", medianRatio(facade.rates, results[mutex.name].rates), 2))
		}
		if clients >= 16 {
			figures = append(figures, atLeast("façade / update loop", medianRatio(facade.rates, results[loop.name].rates), 0.85))
		}
		r.add(results[loop.name])
		r.add(facade, figures...)
		r.add(results[mutex.name])
		r.add(results[sdkName])
		return nil
	}
}

// releaseToNext times hand-offs. The two contenders do not take turns, since the Lease
// needs seconds, most of them asleep.
func releaseToNext(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		leases, err := newLeaseLock(l.user, true)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("release to next, %d", clients)
		slow := &comparison{
			name: name, clients: clients, isHot: true, hold: handOffHold,
			rounds: l.options.roundsOf(3), slice: 5 * time.Second, contenders: []contender{leases},
		}
		slowResults, err := l.compare(ctx, slow)
		if err != nil {
			return err
		}
		quick := &comparison{
			name: name, clients: clients, isHot: true, hold: handOffHold,
			rounds: l.options.roundsOf(10), slice: 400 * time.Millisecond,
			contenders: []contender{newFacade(l.cluster.facade, blockFor), newEtcdMutex(l.etcd)},
		}
		results, err := l.compare(ctx, quick)
		if err != nil {
			return err
		}
		least := map[int]float64{2: 100, 16: 20}[clients]
		p50 := func(result *result) time.Duration { return median(result.total.handOffs) }
		times := float64(p50(slowResults[leases.name])) / float64(p50(results[facadeName]))
		for _, result := range []*result{slowResults[leases.name], results[facadeName], results[quick.contenders[1].name]} {
			result.total.latencies = result.total.handOffs
			if result.contender == facadeName {
				r.add(result, atLeast("p50 shorter than Lease", times, least))
				continue
			}
			r.add(result)
		}
		return nil
	}
}

// writesPerHandOff counts requests while many clients wait.
func writesPerHandOff(ctx context.Context, l *lab, r *report) error {
	const waiters = 100
	c := &comparison{
		name: fmt.Sprintf("hot key, %d", waiters), clients: waiters, isHot: true,
		rounds: 1, slice: 3 * time.Second, contenders: []contender{newFacade(l.cluster.facade, blockFor)},
	}
	results, err := l.compare(ctx, c)
	if err != nil {
		return err
	}
	result := results[facadeName]
	perHandOff := result.requests.writes / float64(max(1, result.counted))
	r.add(result, figure{what: "writes per hand-off", got: perHandOff, least: 1.0, most: 1.1})
	return nil
}
