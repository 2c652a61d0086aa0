package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	blockedCallers = 10_000
	blockedKeys    = 100
	blockedFor     = 30 * time.Second
	// settleFor is how long the operator gets to become idle.
	settleFor = 3 * time.Second
	// dialers is how many connections are made at once: fewer than the backlog of the
	// façade's listener.
	dialers = 32
)

// blocked lets very many callers wait for locks that are not released.
func blocked(ctx context.Context, l *lab, r *report) error {
	holder, err := dialFacade(ctx, l.cluster.facade)
	if err != nil {
		return err
	}
	defer holder.close()
	owner := ownerOf(blockedCallers)
	defer l.forget(ctx, owner)
	for key := range blockedKeys {
		if err := holder.call(ctx, holder.request(acquireBody(blockedKey(key), owner, ttl, 0)), []byte(`"acquired":true`)); err != nil {
			return err
		}
	}
	operator := l.usage.pids["lock-operator"]
	if err := waitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return err
	}
	memoryBefore, err := residentBytes(operator)
	if err != nil {
		return err
	}
	callers, err := l.block(ctx)
	defer func() {
		for _, caller := range callers {
			if caller != nil {
				caller.close()
			}
		}
	}()
	if err != nil {
		return err
	}
	spent, used, err := l.rest(ctx, operator)
	if err != nil {
		return err
	}
	memoryAfter, err := residentBytes(operator)
	if err != nil {
		return err
	}
	if err := allWait(callers); err != nil {
		return err
	}
	perCaller := float64(memoryAfter-memoryBefore) / 1024 / blockedCallers
	r.note(fmt.Sprintf("%d blocked callers", blockedCallers), facadeName,
		atMost("API requests in 30 s", spent.writes+spent.reads, 0, ""),
		atMost("memory per caller", perCaller, 64, " KiB"),
		noted("processor meanwhile", 100*used.Seconds()/blockedFor.Seconds(), " %"))
	return nil
}

// rest waits, and returns the requests about locks and the operator's processor time in
// the meantime.
func (l *lab) rest(ctx context.Context, operator int) (requestCounts, time.Duration, error) {
	if err := waitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return requestCounts{}, 0, err
	}
	before, err := l.requests.read(ctx, "locks")
	if err != nil {
		return requestCounts{}, 0, err
	}
	usedBefore, err := cpuTime(operator)
	if err != nil {
		return requestCounts{}, 0, err
	}
	if err := waitUntil(ctx, time.Now().Add(blockedFor)); err != nil {
		return requestCounts{}, 0, err
	}
	used, err := cpuTime(operator)
	if err != nil {
		return requestCounts{}, 0, err
	}
	after, err := l.requests.read(ctx, "locks")
	return after.since(before), used - usedBefore, err
}

// forget releases the keys for the next scenario.
func (l *lab) forget(ctx context.Context, owner string) {
	connection, err := dialFacade(ctx, l.cluster.facade)
	if err != nil {
		return
	}
	defer connection.close()
	for key := range blockedKeys {
		_ = connection.call(ctx, connection.request(releaseBody(blockedKey(key), owner)), nil) // the lock may never have been acquired
	}
}

func blockedKey(key int) string { return fmt.Sprintf("blocked-%d", key) }

// block connects the callers and sends the request of each. It returns the connected
// callers even with an error.
func (l *lab) block(ctx context.Context) ([]*facadeConnection, error) {
	callers := make([]*facadeConnection, blockedCallers)
	failures := make([]error, dialers)
	var all sync.WaitGroup
	for dialer := range dialers {
		all.Go(func() {
			for caller := dialer; caller < blockedCallers && failures[dialer] == nil; caller += dialers {
				connection, err := dialFacade(ctx, l.cluster.facade)
				if err != nil {
					failures[dialer] = err
					return
				}
				callers[caller] = connection
				body := acquireBody(blockedKey(caller%blockedKeys), ownerOf(caller), ttl, blockFor)
				_, failures[dialer] = connection.connection.Write(connection.request(body))
			}
		})
	}
	all.Wait()
	return callers, errors.Join(failures...)
}

// allWait fails if a caller got an answer or lost its connection.
func allWait(callers []*facadeConnection) error {
	answered := 0
	for _, caller := range callers {
		if err := caller.connection.SetReadDeadline(time.Now().Add(time.Microsecond)); err != nil {
			return err
		}
		_, err := caller.reader.Peek(1)
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
