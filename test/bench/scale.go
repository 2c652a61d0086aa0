package main

import (
	"context"
	"fmt"
	"time"
)

func scaleScenarios() []scenario {
	return []scenario{{"live locks", manyLiveLocks}}
}

// manyLiveLocks compares acquires with and without very many live locks.
func manyLiveLocks(ctx context.Context, l *lab, r *report) error {
	operator := l.usage.pids["lock-operator"]
	none, memoryBefore, err := l.acquireAlone(ctx, "no live locks", operator)
	if err != nil {
		return err
	}
	if err := l.fill(ctx, "live", l.options.liveLocks, func() time.Duration { return 12 * time.Hour }); err != nil {
		return err
	}
	many, memoryAfter, err := l.acquireAlone(ctx, fmt.Sprintf("%d live locks", l.options.liveLocks), operator)
	if err != nil {
		return err
	}
	r.add(none)
	r.add(many,
		atMost("acquire p50 / without", float64(median(many.total.acquires))/float64(median(none.total.acquires)), 1.2, ""),
		atMost("memory per lock", float64(memoryAfter-memoryBefore)/1024/float64(l.options.liveLocks), 3, " KiB"))
	return nil
}

// acquireAlone lets one client acquire and release, and reads the operator's memory when
// the operator is idle again.
func (l *lab) acquireAlone(ctx context.Context, name string, operator int) (*result, int64, error) {
	if err := waitUntil(ctx, time.Now().Add(settleFor)); err != nil {
		return nil, 0, err
	}
	c := &comparison{
		name: name, clients: 1, rounds: l.options.roundsOf(20), slice: 500 * time.Millisecond,
		contenders: []contender{newFacade(l.cluster.facade, 0)},
	}
	results, err := l.compare(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	memory, err := residentBytes(operator)
	return results[facadeName], memory, err
}
