package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

const (
	// boundedLocks is the number of live locks that bounds are about.
	boundedLocks = 100_000
	// restFor is how long memory gets to settle: Go collects garbage at least every two minutes, and returns memory to
	// the system later.
	restFor = 150 * time.Second
	// mebibyte is the unit of memory in reports.
	mebibyte = 1 << 20
	// fillTime bounds the time in which a replica that starts gets each of the locks.
	fillTime = 2 * time.Millisecond
	// lockLife is how long a lock lives in the model of the API server.
	lockLife = 10 * time.Minute
)

// Scale returns the scenarios of the suite scale.
func Scale() []Scenario {
	return []Scenario{{"renewing holders", renewals}, {"live locks", liveLocks}, {"expiry of many", manyExpire}}
}

// memories are the sizes of the cluster's programs with so many live locks.
type memories struct {
	locks                     int
	apiServer, operator, etcd int64
}

func (m memories) sum() int64 { return m.apiServer + m.operator + m.etcd }

// liveLocks measures with more and more live locks, as far as the machine can hold them.
func liveLocks(ctx context.Context, l *lab.Lab, r *report.Report) error {
	stored, err := newStoredLocks(ctx, l, contender.TTL)
	if err != nil {
		return err
	}
	none, err := acquireAlone(ctx, l, "no live locks")
	if err != nil {
		return err
	}
	r.Add(none)
	grown := &growth{none: none, bounded: boundedLocks}
	if l.Options.LiveLocks < boundedLocks {
		grown.bounded = l.Options.LiveLocks
	}
	if err := grown.read(ctx, l, 0); err != nil {
		return err
	}
	growErr := grown.grow(ctx, l, r, stored)
	// What was measured before a failure counts, and what follows needs a cluster without the locks.
	grown.model(r)
	if err := errors.Join(growErr, stored.remove(ctx, "live", grown.written)); err != nil {
		return err
	}
	// The machine may have become slower or faster meanwhile, so the last size is compared with none after it, too.
	if err := measure.AwaitIdle(ctx, l.Usage.Pids[measure.APIServerProgram], l.Usage.Pids[measure.OperatorProgram]); err != nil {
		return err
	}
	after, err := acquireAlone(ctx, l, "no live locks again")
	if err != nil {
		return err
	}
	r.Add(after, report.Noted("acquire p50 / at first", measure.RatioOfMedians(after, none, measure.Acquire), ""))
	return nil
}

// sizesUpTo returns the numbers of locks to measure with: doubled three times, and the bounded one.
func sizesUpTo(most int) []int {
	sizes := []int{max(1, most/8), max(1, most/4), max(1, most/2), most}
	if most > boundedLocks {
		sizes = append(sizes, boundedLocks)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// growth is what was measured with more and more locks.
type growth struct {
	none *measure.Result
	// written is how many locks there may be.
	written int
	// bounded is the number of locks that has bounds.
	bounded  int
	memories []memories
	// starts are those of a replica, by the number of locks, and stored the bytes that etcd uses.
	starts map[int]lab.Start
	stored map[int]int64
}

// grow measures with all sizes that the machine can hold.
func (g *growth) grow(ctx context.Context, l *lab.Lab, r *report.Report, stored *storedLocks) error {
	for _, size := range sizesUpTo(l.Options.LiveLocks) {
		available, err := measure.AvailableBytes()
		if err != nil {
			return err
		}
		if needed := g.needed(size); needed > available {
			r.Remark(fmt.Sprintf("It went as far as %d locks: %d would take another %.1f GiB, and the machine has %.1f GiB left.",
				g.last().locks, size, float64(needed)/(1<<30), float64(available)/(1<<30)))
			return nil
		}
		expire, before := time.Now().Add(12*time.Hour), g.written
		g.written = size
		if err := stored.write(ctx, "live", before, size, func(int) time.Time { return expire }); err != nil {
			return err
		}
		if err := g.measure(ctx, l, r, size); err != nil {
			return fmt.Errorf("with %d locks: %w", size, err)
		}
	}
	return nil
}

func (g *growth) last() memories { return g.memories[len(g.memories)-1] }

// needed returns how much memory the next size may take, or zero before the growth is known.
func (g *growth) needed(size int) int64 {
	if len(g.memories) < 2 {
		return 0
	}
	first, last := g.memories[0], g.last()
	perLock := float64(last.sum()-first.sum()) / float64(last.locks)
	// A list of all locks is in memory twice while it is read, and a second replica starts.
	const headroom = 2
	return int64(headroom * perLock * float64(size-last.locks))
}

// read notes the memory of the cluster's programs when they are idle.
func (g *growth) read(ctx context.Context, l *lab.Lab, locks int) error {
	pids := l.Usage.Pids
	if err := measure.AwaitIdle(ctx, pids[measure.APIServerProgram], pids[measure.OperatorProgram]); err != nil {
		return fmt.Errorf("wait until API server and operator are idle: %w", err)
	}
	if err := measure.WaitUntil(ctx, time.Now().Add(time.Duration(min(1, l.Options.Effort)*float64(restFor)))); err != nil {
		return err
	}
	at := memories{locks: locks}
	for program, size := range map[string]*int64{
		measure.APIServerProgram: &at.apiServer, measure.OperatorProgram: &at.operator, measure.EtcdProgram: &at.etcd,
	} {
		var err error
		if *size, err = measure.ResidentBytes(pids[program]); err != nil {
			return fmt.Errorf("%s has ended: %w", program, err)
		}
	}
	g.memories = append(g.memories, at)
	return nil
}

// measure measures with so many locks.
func (g *growth) measure(ctx context.Context, l *lab.Lab, r *report.Report, size int) error {
	if err := g.read(ctx, l, size); err != nil {
		return err
	}
	status, err := l.Etcd.Status(ctx, l.Etcd.Endpoints()[0])
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d live locks", size)
	many, err := acquireAlone(ctx, l, name)
	if err != nil {
		return err
	}
	end, err := l.Machine.WatchLoaded()
	if err != nil {
		return err
	}
	aside, err := startAside(ctx, l)
	if err != nil {
		return err
	}
	start, startErr := l.StartReplica(ctx, lab.StartTimeout+time.Duration(size)*fillTime)
	beside, asideErr := aside.stop()
	window, err := end()
	if err := errors.Join(startErr, asideErr, err); err != nil {
		return err
	}
	if g.starts == nil {
		g.starts, g.stored = map[int]lab.Start{}, map[int]int64{}
	}
	g.starts[size], g.stored[size] = start, status.DbSizeInUse
	bounded := func(figure report.Figure) report.Figure {
		if size != g.bounded {
			return report.Noted(figure.What, figure.Spread, figure.Unit)
		}
		return figure
	}
	single := func(value float64) measure.Spread { return measure.Single(value, window) }
	perLock := float64(g.last().operator-g.memories[0].operator) / 1024 / float64(size)
	r.Add(many,
		bounded(report.AtMost("acquire p50 / without", measure.RatioOfMedians(many, g.none, measure.Acquire), 1.1, "")),
		report.Noted("acquire p99 / without", measure.RatioOfQuantiles(many, g.none, 0.99), ""),
		// What else uses the machine does not change it.
		bounded(report.AtMost("operator's memory per lock", measure.Single(perLock, measure.Window{}), 2, " KiB")))
	r.Note(name, "a replica that starts",
		bounded(report.AtMost("ready", single(start.Ready.Seconds()), 5, " s")),
		bounded(report.AtMost("first acquire that does not wait", single(start.FirstAcquire.Seconds()), 1, " s")),
		report.Noted("all locks in its cache", single(start.Full.Seconds()), " s"),
		report.Noted("its processor time", single(start.Processor.Seconds()), " s"),
		report.Noted("acquire p50 through another replica meanwhile", single(measure.Milliseconds(measure.Median(beside.Acquires))), " ms"),
		report.Noted("acquire p99 through another replica meanwhile", single(measure.Milliseconds(measure.Quantile(beside.Acquires, 0.99))), " ms"))
	return nil
}

// model adds lines through what was measured.
func (g *growth) model(r *report.Report) {
	series := func(what, unit string, value func(memories) float64) {
		var points []report.Point
		for _, at := range g.memories {
			if at.locks > 0 && g.stored[at.locks] > 0 {
				points = append(points, report.Point{Locks: float64(at.locks), Value: value(at)})
			}
		}
		r.Series(what, unit, points)
	}
	series("etcd, stored", "MiB", func(m memories) float64 { return float64(g.stored[m.locks]) / mebibyte })
	series("etcd, memory", "MiB", func(m memories) float64 { return float64(m.etcd) / mebibyte })
	series("API server, memory", "MiB", func(m memories) float64 { return float64(m.apiServer) / mebibyte })
	series("operator with all components, memory at rest", "MiB", func(m memories) float64 { return float64(m.operator) / mebibyte })
	series("façade, largest memory while a replica starts", "MiB", func(m memories) float64 { return float64(g.starts[m.locks].Peak) / mebibyte })
	series("façade, start to all locks in its cache", "s", func(m memories) float64 { return g.starts[m.locks].Full.Seconds() })
	for _, of := range []struct{ program, what string }{{measure.APIServerProgram, "API server"}, {measure.OperatorProgram, "façade, all replicas"}} {
		perCycle := measure.Each(g.none, measure.Processor(of.program)).Median / 1000
		r.Model(report.Model{What: of.what + ", if each lock lives for ten minutes", Unit: "cores", PerLock: perCycle / lockLife.Seconds()})
	}
}

// acquireAlone lets one client acquire and release.
func acquireAlone(ctx context.Context, l *lab.Lab, name string) (*measure.Result, error) {
	if err := measure.WaitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return nil, err
	}
	results, err := l.Compare(ctx, &measure.Comparison{
		Name: name, Clients: 1, Rounds: l.Options.RoundsOf(20), Slice: 500 * time.Millisecond,
		Contenders: []measure.Contender{contender.NewFacade(l.Cluster.Facade, 0)},
	})
	return results[contender.FacadeName], err
}
