package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// warmUp is how long each contender runs before the first measurement.
const warmUp = 300 * time.Millisecond

// asideEvery is the interval, in rounds, in which contenders aside take part.
const asideEvery = 5

// comparison lets contenders take turns, round after round. The order of turns reverses
// from round to round, so a machine that becomes slower or quicker favours no contender.
type comparison struct {
	name       string
	clients    int
	isHot      bool
	hold       time.Duration
	rounds     int
	slice      time.Duration
	contenders []contender
}

// result is the measurement of one contender in a comparison.
type result struct {
	comparison *comparison
	contender  string
	// rates are cycles per second, by round.
	rates []float64
	total measurement
	// requests were counted in the first round, over the counted cycles.
	requests requestCounts
	counted  int
	usage    usage
}

// entrant is a contender with its open clients.
type entrant struct {
	contender contender
	turn      turn
	result    *result
}

// compare returns the results in the order of the contenders, keyed by name, too.
func (l *lab) compare(ctx context.Context, c *comparison) (map[string]*result, error) {
	var entrants []*entrant
	defer func() {
		for _, e := range entrants {
			for _, each := range e.turn.lockers {
				each.close()
			}
		}
		for _, candidate := range c.contenders {
			if candidate.stop != nil {
				candidate.stop()
			}
		}
	}()
	results := map[string]*result{}
	for position, candidate := range c.contenders {
		entrant, err := c.enter(ctx, position, candidate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", candidate.name, err)
		}
		entrants = append(entrants, entrant)
		results[candidate.name] = entrant.result
	}
	for round := range c.rounds {
		for _, entrant := range entrants {
			if entrant.contender.isAside && round%asideEvery != 0 {
				continue
			}
			if err := l.take(ctx, entrant, round); err != nil {
				return nil, fmt.Errorf("%s: %w", entrant.contender.name, err)
			}
		}
		slices.Reverse(entrants)
	}
	return results, nil
}

// enter opens a contender's clients and lets them warm up.
func (c *comparison) enter(ctx context.Context, position int, candidate contender) (*entrant, error) {
	e := &entrant{contender: candidate, result: &result{comparison: c, contender: candidate.name, usage: usage{}}}
	e.turn.hold, e.turn.length = c.hold, min(warmUp, c.slice)
	e.turn.key = func(client int) string { return fmt.Sprintf("bench-%d-%d", position, client) }
	if c.isHot {
		e.turn.key = func(int) string { return fmt.Sprintf("hot-%d", position) }
	}
	clients := c.clients
	if candidate.clients > 0 {
		clients = candidate.clients
	}
	for client := range clients {
		opened, err := candidate.open(ctx, client)
		if err != nil {
			return nil, err
		}
		e.turn.lockers = append(e.turn.lockers, opened)
	}
	_, err := e.turn.run(ctx)
	e.turn.length = c.slice
	return e, err
}

// take gives an entrant its turn in a round.
func (l *lab) take(ctx context.Context, e *entrant, round int) error {
	counts := round == 0 && e.contender.resource != ""
	var before requestCounts
	var err error
	if counts {
		if before, err = l.requests.read(ctx, e.contender.resource); err != nil {
			return err
		}
	}
	meter := l.usage.with(e.contender.operator)
	used, err := meter.read()
	if err != nil {
		return err
	}
	measured, err := e.turn.run(ctx)
	if err != nil {
		return err
	}
	usedAfter, err := meter.read()
	if err != nil {
		return err
	}
	if counts {
		after, err := l.requests.read(ctx, e.contender.resource)
		if err != nil {
			return err
		}
		e.result.requests, e.result.counted = after.since(before), len(measured.latencies)
	}
	e.result.usage.addSince(used, usedAfter)
	e.result.rates = append(e.result.rates, float64(measured.cycles)/e.turn.length.Seconds())
	e.result.total.add(measured)
	return nil
}
