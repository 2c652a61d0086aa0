// Package scenario has the measurements that benchmarks are made of.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// Scenario is one part of a run.
type Scenario struct {
	Name string
	// Run measures on the lab and adds to the report.
	Run func(ctx context.Context, lab *lab.Lab, report *report.Report) error
}

// Names of contenders that figures refer to.
const (
	bareOperator = "bare custom resource, operator"
	bareUser     = "bare custom resource, user"
	bareUpdates  = "bare update loop"
	lockOperator = "Lock: create + delete, operator"
	lockUser     = "Lock: create + delete, user"
)

// blockFor is how long callers of the façade wait: the longest wait that it allows, and
// longer than any turn.
const blockFor = time.Minute

// handOffHold is how long a lock is held where hand-offs are timed: long enough for all
// effects of the previous release to end.
const handOffHold = 5 * time.Millisecond

// Speed returns the scenarios of the suite speed. With another commit, it is compared, too.
func Speed(hasAgainst bool) []Scenario {
	var all []Scenario
	if hasAgainst {
		// First, when both clusters are new.
		all = append(all, Scenario{"builds", builds})
	}
	for _, clients := range []int{1, 16, 64} {
		all = append(all, Scenario{fmt.Sprintf("distinct keys, %d", clients), distinctKeys(clients)})
	}
	for _, clients := range []int{2, 16, 64} {
		all = append(all, Scenario{fmt.Sprintf("hot key, %d", clients), hotKey(clients)})
	}
	all = append(all, Scenario{"replicas, 16", throughReplicas(16)}, Scenario{"direct create, 1", directCreates(1)},
		Scenario{"schema's rules, 8", schemaRules(8)})
	for _, clients := range []int{2, 16} {
		all = append(all, Scenario{fmt.Sprintf("release to next, %d", clients), releaseToNext(clients)})
	}
	for _, clients := range []int{1, 16} {
		all = append(all,
			Scenario{fmt.Sprintf("doors, %d", clients), doors(clients)},
			Scenario{fmt.Sprintf("observed, %d", clients), observing(clients)})
	}
	return append(all,
		Scenario{"guardable writes", guardableWrites},
		Scenario{"writes per hand-off", writesPerHandOff},
		Scenario{"ping, 16", pings(16)},
		Scenario{"routed call, 1", routedCalls(1)},
		Scenario{"routed call, 16", routedCalls(16)},
		Scenario{"blocked callers", blocked},
		Scenario{"expiry", expiry},
		Scenario{"locked jobs", jobsInTurn},
		// Last, since its locks stay.
		Scenario{"list", lists},
	)
}

// distinctKeys gives every client its own key.
func distinctKeys(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		byOperator, err := distinctByOperator(ctx, l, clients)
		if err != nil {
			return err
		}
		byUser, err := distinctByUser(ctx, l, clients)
		if err != nil {
			return err
		}
		facade, floor := byOperator.of[contender.FacadeName], byOperator.of[bareOperator]
		for _, name := range byOperator.names {
			if name != contender.FacadeName {
				r.Add(byOperator.of[name])
				continue
			}
			r.Add(facade,
				report.AtLeast("cycles / bare custom resource", measure.Ratio(facade, floor, measure.Rate), 0.90),
				report.Noted("API server processor time / bare custom resource", measure.Ratio(facade, floor, measure.Processor(measure.APIServerProgram)), ""))
		}
		sdk := byUser.of[contender.SDKName]
		ratio := report.AtLeast("cycles with webhook / bare custom resource without", measure.Ratio(sdk, byUser.of[bareUser], measure.Rate), 0.75)
		if clients != 16 {
			ratio = report.Noted(ratio.What, ratio.Spread, "")
		}
		r.Add(byUser.of[bareUser])
		r.Add(byUser.of[lockUser])
		r.Add(sdk, ratio)
		return nil
	}
}

// ordered are results in the order of their contenders.
type ordered struct {
	names []string
	of    map[string]*measure.Result
}

func compareInOrder(ctx context.Context, l *lab.Lab, c *measure.Comparison) (ordered, error) {
	var names []string
	for _, each := range c.Contenders {
		names = append(names, each.Name)
	}
	results, err := l.Compare(ctx, c)
	return ordered{names, results}, err
}

func distinctComparison(l *lab.Lab, clients int, contenders ...measure.Contender) *measure.Comparison {
	c := &measure.Comparison{
		Name: fmt.Sprintf("distinct keys, %d", clients), Clients: clients,
		Rounds: l.Options.RoundsOf(21), Slice: 300 * time.Millisecond, Contenders: contenders,
	}
	if clients > 16 {
		// A turn must be several times as long as a cycle.
		c.Rounds, c.Slice = l.Options.RoundsOf(11), 800*time.Millisecond
	}
	return c
}

// distinctByOperator compares the façade with what the same identity can do without it, and with peers.
func distinctByOperator(ctx context.Context, l *lab.Lab, clients int) (ordered, error) {
	bare, err := contender.NewBareObject(bareOperator, l.Operator, contender.Bare)
	if err != nil {
		return ordered{}, err
	}
	lock, err := contender.NewLockObject(lockOperator, l.Operator, contender.StampedLock)
	if err != nil {
		return ordered{}, err
	}
	lease, err := contender.NewBareLease(l.Operator)
	if err != nil {
		return ordered{}, err
	}
	polled, err := contender.NewLeaseLock(l.User, false)
	if err != nil {
		return ordered{}, err
	}
	asides := []measure.Contender{lock, lease, contender.NewEtcdKey(l.Etcd), contender.NewEtcdMutex(l.Etcd), polled}
	redis, err := contender.NewRedisLock(ctx)
	switch {
	case err == nil:
		asides = append(asides, redis)
	case !errors.Is(err, contender.ErrNoRedis):
		return ordered{}, err
	}
	contenders := []measure.Contender{bare, contender.NewFacade(l.Cluster.Facade, 0)}
	for _, each := range asides {
		each.IsAside = true
		contenders = append(contenders, each)
	}
	return compareInOrder(ctx, l, distinctComparison(l, clients, contenders...))
}

// distinctByUser compares the SDK with what the same user can do without the webhook. It is a comparison of its own,
// since the SDK's watch would slow down other contenders.
func distinctByUser(ctx context.Context, l *lab.Lab, clients int) (ordered, error) {
	bare, err := contender.NewBareObject(bareUser, l.User, contender.Bare)
	if err != nil {
		return ordered{}, err
	}
	lock, err := contender.NewLockObject(lockUser, l.User, contender.DeclaredLock)
	if err != nil {
		return ordered{}, err
	}
	lock.IsAside = true
	sdk, err := contender.NewSDK(ctx, l.User)
	if err != nil {
		return ordered{}, err
	}
	return compareInOrder(ctx, l, distinctComparison(l, clients, bare, lock, sdk))
}

// hotKey lets all clients contend for one key all the time.
func hotKey(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		bare, err := contender.NewBareUpdates(bareUpdates, l.Operator, contender.Bare)
		if err != nil {
			return err
		}
		updates, err := contender.NewUpdateLoop(l.Operator)
		if err != nil {
			return err
		}
		mutex := contender.NewEtcdMutex(l.Etcd)
		sdk, err := contender.NewSDK(ctx, l.User)
		if err != nil {
			return err
		}
		updates.IsAside, sdk.IsAside = true, true
		results, err := compareInOrder(ctx, l, &measure.Comparison{
			Name: fmt.Sprintf("hot key, %d", clients), Clients: clients, IsHot: true,
			Rounds: l.Options.RoundsOf(16), Slice: 500 * time.Millisecond,
			Contenders: []measure.Contender{bare, contender.NewFacade(l.Cluster.Facade, blockFor), mutex, updates, sdk},
		})
		if err != nil {
			return err
		}
		facade := results.of[contender.FacadeName]
		toMutex, toUpdates := measure.Ratio(facade, results.of[mutex.Name], measure.Rate), measure.Ratio(facade, results.of[bareUpdates], measure.Rate)
		var figures []report.Figure
		if least, ok := map[int]float64{2: 8, 16: 2}[clients]; ok {
			figures = append(figures, report.AtLeast("hand-offs / etcd's mutex", toMutex, least))
		}
		if clients >= 16 {
			figures = append(figures, report.AtLeast("hand-offs / bare update loop", toUpdates, 1.10))
		} else {
			figures = append(figures, report.Noted("hand-offs / bare update loop", toUpdates, ""))
		}
		for _, name := range results.names {
			if name == contender.FacadeName {
				r.Add(facade, figures...)
				continue
			}
			r.Add(results.of[name])
		}
		return nil
	}
}

// releaseToNext times hand-offs. The two contenders do not take turns, since the Lease
// needs seconds, most of them asleep.
func releaseToNext(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		leases, err := contender.NewLeaseLock(l.User, true)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("release to next, %d", clients)
		slow, err := l.Compare(ctx, &measure.Comparison{
			Name: name, Clients: clients, IsHot: true, Hold: handOffHold,
			Rounds: l.Options.RoundsOf(4), Slice: 4 * time.Second, Contenders: []measure.Contender{leases},
		})
		if err != nil {
			return err
		}
		mutex := contender.NewEtcdMutex(l.Etcd)
		quick, err := l.Compare(ctx, &measure.Comparison{
			Name: name, Clients: clients, IsHot: true, Hold: handOffHold,
			Rounds: l.Options.RoundsOf(10), Slice: 400 * time.Millisecond,
			Contenders: []measure.Contender{contender.NewFacade(l.Cluster.Facade, blockFor), mutex},
		})
		if err != nil {
			return err
		}
		lease, facade := slow[leases.Name], quick[contender.FacadeName]
		for _, result := range []*measure.Result{lease, facade, quick[mutex.Name]} {
			result.Total.Latencies = result.Total.HandOffs
		}
		least := map[int]float64{2: 100, 16: 20}[clients]
		r.Add(lease)
		r.Add(facade, report.AtLeast("times shorter than with a Lease, p50", measure.RatioOfMedians(lease, facade, measure.HandOff), least))
		r.Add(quick[mutex.Name])
		return nil
	}
}

// writesPerHandOff counts requests while many clients wait.
func writesPerHandOff(ctx context.Context, l *lab.Lab, r *report.Report) error {
	const waiters = 100
	results, err := l.Compare(ctx, &measure.Comparison{
		Name: fmt.Sprintf("hot key, %d", waiters), Clients: waiters, IsHot: true,
		Rounds: 1, Slice: 3 * time.Second, Contenders: []measure.Contender{contender.NewFacade(l.Cluster.Facade, blockFor)},
	})
	if err != nil {
		return err
	}
	result := results[contender.FacadeName]
	perHandOff := result.Requests.Writes / float64(max(1, result.Counted))
	r.Add(result, report.Between("writes per hand-off", measure.Single(perHandOff, measure.Window{}), 1.0, 1.1))
	return nil
}
