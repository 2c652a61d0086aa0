package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	blockedCallers = 10_000
	blockedKeys    = 100
	blockedFor     = 30 * time.Second
	// mostReads is how often the heads of the queues may read their locks in that time: each does every 3.75 to 5 s.
	mostReads = blockedKeys * 8
	// settleFor is how long the operator gets to become idle.
	settleFor = 3 * time.Second
)

// blocked lets very many callers wait for locks that are not released.
func blocked(b *bench) {
	key := func(number int) string { return fmt.Sprintf("blocked-%d", number%blockedKeys) }
	holder, owner := must(b.facade.dial(b, 0)), ownerOf(blockedCallers)
	b.cleanup(holder.hangUp)
	for number := range blockedKeys {
		check(holder.call(b, acquireCall(key(number), owner, 0), `"acquired":true`))
	}
	operator := b.pids[operatorProgram]
	check(waitUntil(b, time.Now().Add(settleFor)))
	memory := kibibytes(operator, resident)
	callers := make([]*connection, blockedCallers)
	hangUp := func() {
		for _, caller := range callers {
			if caller != nil {
				caller.hangUp()
			}
		}
	}
	b.cleanup(hangUp)
	var before, after requestCounts
	var used time.Duration
	disturbance := b.machine.during(func() {
		// Fewer at once than the backlog of the façade's listener.
		check(inParallel(b, 32, blockedCallers, func(ctx context.Context, number int) (err error) {
			if callers[number], err = b.facade.dial(ctx, number); err != nil {
				return err
			}
			return callers[number].send(http.MethodPost, "/forrst", "", acquireCall(key(number), ownerOf(number), blockFor))
		}))
		check(waitUntil(b, time.Now().Add(settleFor)))
		before = b.countRequests(b, locks)
		used = -cpuTime(operator)
		check(waitUntil(b, time.Now().Add(blockedFor)))
		used += cpuTime(operator)
		after = b.countRequests(b, locks)
	})
	perCaller := (kibibytes(operator, resident) - memory) / blockedCallers
	for number, caller := range callers {
		// It has neither got an answer nor lost its connection.
		check(caller.SetReadDeadline(time.Now().Add(time.Microsecond)))
		if _, err := caller.answers.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			check(fmt.Errorf("caller %d no longer waits", number))
		}
	}
	b.note(fmt.Sprintf("%d blocked callers", blockedCallers), facadeName,
		// What else uses the machine can only add requests.
		atMost("API requests in 30 s", single(after.writes+after.reads-before.writes-before.reads, ""), mostReads, ""),
		atMost("memory per caller", single(perCaller, disturbance), 64, " KiB"),
		noted("processor meanwhile", single(100*used.Seconds()/blockedFor.Seconds(), disturbance), " %"))
	hangUp() // before the releases, which would make them holders
	for number := range blockedKeys {
		check(holder.call(b, releaseCall(key(number), owner), ""))
	}
}
