package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// warmUp is how long each contender runs before the first round.
const warmUp = 300 * time.Millisecond

// comparison lets contenders take turns, round after round. The order of turns reverses from round to round, so a machine
// that becomes slower or quicker favours no contender.
type comparison struct {
	name    string
	clients int
	// isHot says that all clients want one key. Otherwise each has its own.
	isHot bool
	// hold is how long a client keeps the lock.
	hold time.Duration
	// rounds is how many there are with an effort of 1, and slice the length of a turn.
	rounds     int
	slice      time.Duration
	contenders []contender
}

// result is the measurement of one contender.
type result struct {
	scenario, contender string
	rounds              []round
	// total is of all rounds.
	total measurement
	// requests are those of the first round for each cycle. Nil if the contender sends none.
	requests *requestCounts
}

// round is the measurement of one contender in one round.
type round struct {
	// perSecond is cycles per second.
	perSecond float64
	// acquire is the median of the times of an acquire, handOff that of the hand-offs. Zero if there were none.
	acquire, handOff time.Duration
	// usage is the processor time per cycle, by program.
	usage map[string]time.Duration
	// disturbance says what else used the machine during the round. Empty if nothing did.
	disturbance string
}

// What is measured in a round, for [ratio]. Times are in milliseconds.
func rate(r round) float64        { return r.perSecond }
func cycleTime(r round) float64   { return 1000 / r.perSecond }
func acquireTime(r round) float64 { return milliseconds(r.acquire) }
func handOffTime(r round) float64 { return milliseconds(r.handOff) }

// processorTime returns the processor time of a program per cycle.
func processorTime(program string) func(round) float64 {
	return func(r round) float64 { return milliseconds(r.usage[program]) }
}

// entrant is a contender with its open clients.
type entrant struct {
	contender
	*turn
	result *result
}

// compare lets the contenders take turns. The results are in their order.
func (b *bench) compare(c comparison) []*result {
	var entrants []*entrant
	defer func() {
		for _, each := range entrants {
			each.close()
		}
	}()
	var results []*result
	for position, contender := range c.contenders {
		entered := b.enter(c, position, contender)
		entrants, results = append(entrants, entered), append(results, entered.result)
		must(entered.run(b))
		entered.length = c.slice
	}
	for number := range max(2, int(b.options.effort*float64(c.rounds))) {
		disturbance := b.machine.during(func() {
			for _, each := range entrants {
				each.take(b, number == 0 && each.resource != "")
			}
		})
		for _, result := range results {
			result.rounds[number].disturbance = disturbance
		}
		slices.Reverse(entrants)
	}
	return results
}

// enter opens a contender's clients for the warm-up.
func (b *bench) enter(c comparison, position int, contender contender) *entrant {
	if contender.at == nil {
		contender.at = b.cluster
	}
	clients := c.clients
	if contender.clients > 0 {
		clients = contender.clients
	}
	turn := newTurn(b, contender, clients)
	turn.hold, turn.length, turn.countsParts = c.hold, min(warmUp, c.slice), !c.isHot
	turn.key = func(client int) string {
		if c.isHot {
			return fmt.Sprintf("hot-%d", position)
		}
		return fmt.Sprintf("bench-%d-%d", position, client)
	}
	return &entrant{contender, turn, &result{scenario: c.name, contender: contender.name}}
}

// take gives an entrant its turn in a round, in which its requests may be counted.
func (e *entrant) take(ctx context.Context, counts bool) {
	var before requestCounts
	if counts {
		before = e.at.countRequests(ctx, e.resource)
	}
	pids := maps.Clone(e.at.pids)
	if e.operator != 0 {
		pids[operatorProgram] = e.operator
	}
	used := cpuTimes(pids)
	measured := must(e.run(ctx))
	usage := cpuTimes(pids)
	cycles := max(1, len(measured.latencies))
	for program := range usage {
		usage[program] = (usage[program] - used[program]) / time.Duration(cycles)
	}
	if counts {
		after := e.at.countRequests(ctx, e.resource)
		e.result.requests = &requestCounts{(after.writes - before.writes) / float64(cycles), (after.reads - before.reads) / float64(cycles)}
	}
	e.result.rounds = append(e.result.rounds, round{
		perSecond: measured.cycles / e.length.Seconds(), usage: usage,
		acquire: quantile(measured.acquires, 0.5), handOff: quantile(measured.handOffs, 0.5),
	})
	e.result.total.add(measured)
}
