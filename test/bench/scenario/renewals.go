package scenario

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

const (
	renewingHolders = 10_000
	renewedTTL      = 30 * time.Second
	// renewEvery is the interval of the SDK: a third of the ttl.
	renewEvery = renewedTTL / 3
	// renewConnections is how many connections the holders share.
	renewConnections = 64
	// renewFor is how long they renew: long enough for a lock that is not renewed to be lost.
	renewFor = 60 * time.Second
	// fewestHolders is where to give up.
	fewestHolders = 500
	// maxSlowdown is how many times longer an acquire may take beside them.
	maxSlowdown = 2
)

// renewals lets many holders renew their locks, and measures acquires beside them: half as many if locks are lost or the
// acquires take too long.
func renewals(ctx context.Context, l *lab.Lab, r *report.Report) error {
	stored, err := newStoredLocks(ctx, l, renewedTTL)
	if err != nil {
		return err
	}
	alone, err := acquireAlone(ctx, l, "acquire, no renewals")
	if err != nil {
		return err
	}
	r.Add(alone)
	most, isModelled := max(1, min(renewingHolders, l.Options.LiveLocks/10)), false
	for holders := most; ; holders /= 2 {
		renewed, err := renewBeside(ctx, l, stored, holders)
		if err != nil {
			return err
		}
		p99 := renewed.add(r, alone, holders == most)
		if renewed.lost == 0 && !isModelled {
			renewed.model(r)
			isModelled = true
		}
		if renewed.lost == 0 && p99 <= maxSlowdown || holders/2 < fewestHolders {
			return nil
		}
		if renewed.lost > 0 {
			r.Remark(fmt.Sprintf("%d holders with a ttl of %s are too many for this machine: it renewed %.0f times per second where they need %.0f.",
				holders, renewedTTL, renewed.perSecond(), float64(holders)/renewEvery.Seconds()))
		}
	}
}

// renewed is the measurement of holders that renew.
type renewed struct {
	holders int
	// answered is how many renewals succeeded, lost how many found that the lock was lost.
	answered, lost int64
	took           time.Duration
	// processor is the processor time of the programs in the second round of renewals, in which no one acquires, and
	// meanwhile is how many renewals succeeded in it.
	processor map[string]time.Duration
	meanwhile int64
	beside    *measure.Result
	window    measure.Window
}

func (n *renewed) perSecond() float64 { return float64(n.answered) / n.took.Seconds() }

// add returns how many times longer the slowest hundredth of the acquires took.
func (n *renewed) add(r *report.Report, alone *measure.Result, hasBounds bool) float64 {
	lost := report.AtMost("locks lost", measure.Single(float64(n.lost), n.window), 0, "")
	p99 := report.AtMost("acquire p99 beside / alone", measure.RatioOfQuantiles(n.beside, alone, 0.99), maxSlowdown, "")
	if !hasBounds {
		lost, p99 = report.Noted(lost.What, lost.Spread, ""), report.Noted(p99.What, p99.Spread, "")
	}
	r.Add(n.beside, lost, p99, report.Noted("renewals/s", measure.Single(n.perSecond(), n.window), ""))
	return p99.Spread.Median
}

func (n *renewed) model(r *report.Report) {
	for _, of := range []struct{ program, what string }{{measure.APIServerProgram, "API server"}, {measure.OperatorProgram, "façade, all replicas"}} {
		r.Model(report.Model{
			What: of.what + ", if each lock has a ttl of 30 s and is renewed every 10 s", Unit: "cores",
			PerLock: n.processor[of.program].Seconds() / float64(n.meanwhile) / renewEvery.Seconds(),
		})
	}
}

// renewBeside stores the locks of the holders, renews them, and measures acquires meanwhile.
func renewBeside(ctx context.Context, l *lab.Lab, stored *storedLocks, holders int) (*renewed, error) {
	prefix := fmt.Sprintf("renewed%d", holders)
	expire := time.Now().Add(2 * renewedTTL)
	if err := stored.write(ctx, prefix, 0, holders, func(int) time.Time { return expire }); err != nil {
		return nil, err
	}
	end, err := l.Machine.WatchLoaded()
	if err != nil {
		return nil, err
	}
	n := &renewed{holders: holders, processor: map[string]time.Duration{}}
	started := time.Now()
	until := started.Add(max(time.Duration(min(1, l.Options.Effort)*float64(renewFor)), 3*renewEvery))
	failures := make(chan error, 1)
	go func() { failures <- n.renew(ctx, l, prefix, started, until) }()

	// In the first round, the façade reads each lock, which it did not grant.
	if err := measure.WaitUntil(ctx, started.Add(renewEvery)); err != nil {
		return nil, err
	}
	if err := n.readProcessors(ctx, l, started.Add(2*renewEvery)); err != nil {
		return nil, err
	}
	rounds := int(time.Until(until) / time.Second)
	results, compareErr := l.Compare(ctx, &measure.Comparison{
		Name: fmt.Sprintf("acquire beside %d renewing holders", holders), Clients: 1, IsLoaded: true, Rounds: max(2, rounds), Slice: 500 * time.Millisecond,
		Contenders: []measure.Contender{contender.NewFacade(l.Cluster.Facade, 0)},
	})
	if err := <-failures; err != nil {
		return nil, err
	}
	if compareErr != nil {
		return nil, compareErr
	}
	n.took, n.beside = time.Since(started), results[contender.FacadeName]
	if n.window, err = end(); err != nil {
		return nil, err
	}
	return n, awaitNone(ctx, l.Etcd, prefix)
}

// readProcessors measures what API server and operator need until then.
func (n *renewed) readProcessors(ctx context.Context, l *lab.Lab, until time.Time) error {
	programs := []string{measure.APIServerProgram, measure.OperatorProgram}
	for _, program := range programs {
		before, err := measure.CPUTime(l.Usage.Pids[program])
		if err != nil {
			return err
		}
		n.processor[program] = -before
	}
	answered := atomic.LoadInt64(&n.answered)
	if err := measure.WaitUntil(ctx, until); err != nil {
		return err
	}
	for _, program := range programs {
		after, err := measure.CPUTime(l.Usage.Pids[program])
		if err != nil {
			return err
		}
		n.processor[program] += after
	}
	n.meanwhile = atomic.LoadInt64(&n.answered) - answered
	return nil
}

// renew renews the locks of all holders, each every renewEvery, until the end.
func (n *renewed) renew(ctx context.Context, l *lab.Lab, prefix string, started, end time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for first := range min(renewConnections, n.holders) {
		all.Go(func() {
			if err := n.renewSome(ctx, l, prefix, first, started, end); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// renewSome renews the locks of every so many-th holder from the first one on. The holders of all connections take turns
// evenly in time.
func (n *renewed) renewSome(ctx context.Context, l *lab.Lab, prefix string, first int, started, end time.Time) error {
	connection, err := contender.DialFacade(ctx, l.Cluster.Facade)
	if err != nil {
		return err
	}
	defer connection.Close()
	lost := map[int]bool{}
	for due := started; ; due = due.Add(renewEvery) {
		for holder := first; holder < n.holders; holder += renewConnections {
			at := due.Add(renewEvery * time.Duration(holder) / time.Duration(n.holders))
			if at.After(end) {
				return nil
			}
			if err := measure.WaitUntil(ctx, at); err != nil {
				return err
			}
			if lost[holder] {
				continue
			}
			body := contender.RenewBody(fmt.Sprintf("%s-%d", prefix, holder), contender.OwnerOf(holder))
			renew := func() (bool, error) { return connection.Asks(ctx, connection.Request(body), []byte(`"renewed":true`)) }
			isRenewed, err := renew()
			if err == nil && !isRenewed {
				// As the SDK does: the answer may have been that the service is not available for the moment.
				isRenewed, err = renew()
			}
			if err != nil {
				return err
			}
			if !isRenewed {
				lost[holder] = true
				atomic.AddInt64(&n.lost, 1)
				continue
			}
			atomic.AddInt64(&n.answered, 1)
		}
	}
}

// awaitNone returns when the locks of the prefix have expired and are deleted.
func awaitNone(ctx context.Context, etcd *clientv3.Client, prefix string) error {
	for {
		left, err := etcd.Get(ctx, lockPath(prefix+"-"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || left.Count == 0 {
			return err
		}
		if err := measure.WaitUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}
	}
}
