package measure

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

// Comparison lets contenders take turns, round after round. The order of turns reverses
// from round to round, so a machine that becomes slower or quicker favours no contender.
type Comparison struct {
	Name    string
	Clients int
	// IsHot says that all clients want one key. Otherwise each has its own.
	IsHot bool
	// Hold is how long a client keeps the lock.
	Hold   time.Duration
	Rounds int
	// Slice is the length of a turn.
	Slice      time.Duration
	Contenders []Contender
	// IsLoaded says that other load of the benchmark keeps the machine busy meanwhile; see [Machine.WatchLoaded].
	IsLoaded bool
}

// Result is the measurement of one contender in a comparison.
type Result struct {
	Comparison *Comparison
	Contender  string
	// Rounds are those in which the contender took part.
	Rounds []Round
	Total  Measurement
	// Requests were counted in the first round, over the Counted cycles.
	Requests RequestCounts
	Counted  int
	Usage    Usage
}

// Round is the measurement of one contender in one round.
type Round struct {
	Number int
	// PerSecond is cycles per second.
	PerSecond float64
	// Acquire is the median of the times of an acquire, and HandOff of those from the start of a release until the next
	// client has the lock. Zero if there were none.
	Acquire, HandOff time.Duration
	// Acquires are the times of all acquires.
	Acquires []time.Duration
	// Usage is the processor time per cycle.
	Usage Usage
	// Disturbance says what else used the machine during the round. Empty if nothing did.
	Disturbance string
}

// Rate returns the cycles per second, for [Ratio].
func Rate(r Round) float64 { return r.PerSecond }

// Time returns the seconds per cycle, for [Ratio].
func Time(r Round) float64 {
	if r.PerSecond == 0 {
		return 0
	}
	return 1 / r.PerSecond
}

// Acquire returns the milliseconds of an acquire, for [Ratio].
func Acquire(r Round) float64 { return Milliseconds(r.Acquire) }

// HandOff returns the milliseconds of a hand-off, for [Ratio].
func HandOff(r Round) float64 { return Milliseconds(r.HandOff) }

// Processor returns a function for [Ratio]: the milliseconds of processor time of the program per cycle.
func Processor(program string) func(Round) float64 {
	return func(r Round) float64 { return Milliseconds(r.Usage[program]) }
}

// Site is the cluster that contenders use.
type Site struct {
	Requests *RequestCounter
	Usage    *UsageMeter
}

// entrant is a contender with its open clients.
type entrant struct {
	contender Contender
	site      Site
	turn      Turn
	result    *Result
}

// Run lets the contenders take turns at the site, or at their own, and returns their results by name.
func (c *Comparison) Run(ctx context.Context, machine *Machine, at Site) (map[string]*Result, error) {
	var entrants []*entrant
	defer func() {
		for _, e := range entrants {
			for _, each := range e.turn.Lockers {
				each.Close()
			}
		}
		for _, candidate := range c.Contenders {
			if candidate.Stop != nil {
				candidate.Stop()
			}
		}
	}()
	results := map[string]*Result{}
	for position, candidate := range c.Contenders {
		entrant, err := c.enter(ctx, position, candidate, at)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", candidate.Name, err)
		}
		entrants = append(entrants, entrant)
		results[candidate.Name] = entrant.result
	}
	for round := range c.Rounds {
		if err := c.takeTurns(ctx, machine, entrants, round); err != nil {
			return nil, err
		}
		slices.Reverse(entrants)
	}
	return results, nil
}

// takeTurns plays one round.
func (c *Comparison) takeTurns(ctx context.Context, machine *Machine, entrants []*entrant, round int) error {
	end, err := machine.watch(!c.IsLoaded)
	if err != nil {
		return err
	}
	var took []*Result
	for _, entrant := range entrants {
		if entrant.contender.IsAside && round%asideEvery != 0 {
			continue
		}
		if err := entrant.take(ctx, round); err != nil {
			return fmt.Errorf("%s: %w", entrant.contender.Name, err)
		}
		took = append(took, entrant.result)
	}
	window, err := end()
	if err != nil {
		return err
	}
	for _, result := range took {
		result.Rounds[len(result.Rounds)-1].Disturbance = window.Disturbance()
	}
	return nil
}

// enter opens a contender's clients and lets them warm up.
func (c *Comparison) enter(ctx context.Context, position int, candidate Contender, at Site) (*entrant, error) {
	e := &entrant{contender: candidate, site: at, result: &Result{Comparison: c, Contender: candidate.Name, Usage: Usage{}}}
	if candidate.Site != nil {
		e.site = *candidate.Site
	}
	e.turn.Hold, e.turn.Length, e.turn.CountsParts = c.Hold, min(warmUp, c.Slice), !c.IsHot
	e.turn.Key = func(client int) string { return fmt.Sprintf("bench-%d-%d", position, client) }
	if c.IsHot {
		e.turn.Key = func(int) string { return fmt.Sprintf("hot-%d", position) }
	}
	clients := c.Clients
	if candidate.Clients > 0 {
		clients = candidate.Clients
	}
	for client := range clients {
		opened, err := candidate.Open(ctx, client)
		if err != nil {
			return nil, err
		}
		e.turn.Lockers = append(e.turn.Lockers, opened)
	}
	_, err := e.turn.Run(ctx)
	e.turn.Length = c.Slice
	return e, err
}

// take gives an entrant its turn in a round.
func (e *entrant) take(ctx context.Context, round int) error {
	counts := round == 0 && e.contender.Resource != ""
	var before RequestCounts
	var err error
	if counts {
		if before, err = e.site.Requests.Read(ctx, e.contender.Resource); err != nil {
			return err
		}
	}
	meter := e.site.Usage.with(e.contender.Operator)
	used, err := meter.read()
	if err != nil {
		return err
	}
	measured, err := e.turn.Run(ctx)
	if err != nil {
		return err
	}
	usedAfter, err := meter.read()
	if err != nil {
		return err
	}
	if counts {
		after, err := e.site.Requests.Read(ctx, e.contender.Resource)
		if err != nil {
			return err
		}
		e.result.Requests, e.result.Counted = after.Since(before), len(measured.Latencies)
	}
	spent := Usage{}
	spent.addSince(used, usedAfter)
	e.result.Usage.addSince(used, usedAfter)
	e.result.Rounds = append(e.result.Rounds, Round{
		Number: round, PerSecond: measured.Cycles / e.turn.Length.Seconds(),
		Acquire: Median(measured.Acquires), HandOff: Median(measured.HandOffs),
		Acquires: measured.Acquires, Usage: spent.per(len(measured.Latencies)),
	})
	e.result.Total.add(measured)
	return nil
}
