package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

const (
	blockedCallers = 10_000
	blockedKeys    = 100
	blockedFor     = 30 * time.Second
	// settleFor is how long the operator gets to become idle.
	settleFor = 3 * time.Second
	// mostReads is how often the heads of the queues may read their locks in that time: each does every 3.75 to 5 s.
	mostReads = blockedKeys * 8
	// dialers is how many connections are made at once: fewer than the backlog of the
	// façade's listener.
	dialers = 32
)

// blocked lets very many callers wait for locks that are not released.
func blocked(ctx context.Context, l *lab.Lab, r *report.Report) error {
	holder, err := contender.DialFacade(ctx, l.Cluster.Facade)
	if err != nil {
		return err
	}
	defer holder.Close()
	owner := contender.OwnerOf(blockedCallers)
	defer forget(ctx, l, owner)
	for key := range blockedKeys {
		if err := holder.Call(ctx, holder.Request(contender.AcquireBody(blockedKey(key), owner, contender.TTL, 0)), []byte(`"acquired":true`)); err != nil {
			return err
		}
	}
	operator := l.Usage.Pids[measure.OperatorProgram]
	if err := measure.WaitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return err
	}
	memoryBefore, err := measure.ResidentBytes(operator)
	if err != nil {
		return err
	}
	end, err := l.Machine.Watch()
	if err != nil {
		return err
	}
	callers, err := block(ctx, l)
	defer func() {
		for _, caller := range callers {
			if caller != nil {
				caller.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	spent, used, err := restAndCount(ctx, l, operator)
	if err != nil {
		return err
	}
	memoryAfter, err := measure.ResidentBytes(operator)
	if err != nil {
		return err
	}
	if err := allWait(callers); err != nil {
		return err
	}
	window, err := end()
	if err != nil {
		return err
	}
	single := func(value float64) measure.Spread { return measure.Single(value, window) }
	perCaller := float64(memoryAfter-memoryBefore) / 1024 / blockedCallers
	requests := measure.Single(spent.Writes+spent.Reads, measure.Window{})
	r.Note(fmt.Sprintf("%d blocked callers", blockedCallers), contender.FacadeName,
		report.AtMost("API requests in 30 s", requests, mostReads, ""),
		report.AtMost("memory per caller", single(perCaller), 64, " KiB"),
		report.Noted("processor meanwhile", single(100*used.Seconds()/blockedFor.Seconds()), " %"))
	return nil
}

// restAndCount waits, and returns the requests about locks and the operator's processor time in
// the meantime.
func restAndCount(ctx context.Context, l *lab.Lab, operator int) (measure.RequestCounts, time.Duration, error) {
	if err := measure.WaitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return measure.RequestCounts{}, 0, err
	}
	before, err := l.Requests.Read(ctx, "locks")
	if err != nil {
		return measure.RequestCounts{}, 0, err
	}
	usedBefore, err := measure.CPUTime(operator)
	if err != nil {
		return measure.RequestCounts{}, 0, err
	}
	if err := measure.WaitUntil(ctx, time.Now().Add(blockedFor)); err != nil {
		return measure.RequestCounts{}, 0, err
	}
	used, err := measure.CPUTime(operator)
	if err != nil {
		return measure.RequestCounts{}, 0, err
	}
	after, err := l.Requests.Read(ctx, "locks")
	return after.Since(before), used - usedBefore, err
}

// forget releases the keys for the next scenario.
func forget(ctx context.Context, l *lab.Lab, owner string) {
	connection, err := contender.DialFacade(ctx, l.Cluster.Facade)
	if err != nil {
		return
	}
	defer connection.Close()
	for key := range blockedKeys {
		_ = connection.Call(ctx, connection.Request(contender.ReleaseBody(blockedKey(key), owner)), nil) // the lock may never have been acquired
	}
}

func blockedKey(key int) string { return fmt.Sprintf("blocked-%d", key) }

// block connects the callers and sends the request of each. It returns the connected
// callers even with an error.
func block(ctx context.Context, l *lab.Lab) ([]*contender.FacadeConnection, error) {
	callers := make([]*contender.FacadeConnection, blockedCallers)
	failures := make([]error, dialers)
	var all sync.WaitGroup
	for dialer := range dialers {
		all.Go(func() {
			for caller := dialer; caller < blockedCallers && failures[dialer] == nil; caller += dialers {
				connection, err := contender.DialFacade(ctx, l.Cluster.Facade)
				if err != nil {
					failures[dialer] = err
					return
				}
				callers[caller] = connection
				body := contender.AcquireBody(blockedKey(caller%blockedKeys), contender.OwnerOf(caller), contender.TTL, blockFor)
				_, failures[dialer] = connection.Connection.Write(connection.Request(body))
			}
		})
	}
	all.Wait()
	return callers, errors.Join(failures...)
}

// allWait fails if a caller got an answer or lost its connection.
func allWait(callers []*contender.FacadeConnection) error {
	answered := 0
	for _, caller := range callers {
		if err := caller.Connection.SetReadDeadline(time.Now().Add(time.Microsecond)); err != nil {
			return err
		}
		_, err := caller.Reader.Peek(1)
		var failure net.Error
		if !errors.As(err, &failure) || !errors.Is(err, os.ErrDeadlineExceeded) {
			answered++
		}
	}
	if answered > 0 {
		return fmt.Errorf("%d of %d callers no longer wait", answered, len(callers))
	}
	return nil
}
