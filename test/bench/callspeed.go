package main

import (
	"context"
	"fmt"
	"time"
)

// pings compares the cheapest function with the cheapest server.
func pings(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		echo := newCaller("bare net/http JSON echo", l.echo.address, pingBody, `"forrst.ping"`)
		ping := newCaller(facadeName, l.cluster.facade, pingBody, `"status":"healthy"`)
		results, err := l.compare(ctx, &comparison{
			name: fmt.Sprintf("ping, %d", clients), clients: clients,
			rounds: l.options.roundsOf(30), slice: 300 * time.Millisecond, contenders: []contender{echo, ping},
		})
		if err != nil {
			return err
		}
		bare, facade := results[echo.name], results[ping.name]
		r.add(bare)
		r.add(facade, atLeast("façade / echo", medianRatio(facade.rates, bare.rates), 0.5))
		return nil
	}
}

// routedCalls compares a call inside a lock with the call and the lock by themselves.
func routedCalls(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		const result = `"sku":"X9"`
		rounds, slice := l.options.roundsOf(30), 500*time.Millisecond
		if clients > 1 {
			// No bound depends on it. A turn must be several times as long as a cycle.
			rounds, slice = l.options.roundsOf(10), 800*time.Millisecond
		}
		bare := newCaller("bare routed call", l.cluster.facade, routedBody, result)
		apart := newFacade(l.cluster.facade, 0)
		apart.name = "acquire + release"
		locked := newCaller("routed call with a lock", l.cluster.facade, lockedBody, result, `"acquired":true`)
		locked.resource = "locks"
		results, err := l.compare(ctx, &comparison{
			name: fmt.Sprintf("routed call, %d", clients), clients: clients,
			rounds: rounds, slice: slice, contenders: []contender{bare, apart, locked},
		})
		if err != nil {
			return err
		}
		together := results[locked.name]
		sum := serialRates(results[bare.name].rates, results[apart.name].rates)
		// Times per cycle are the reciprocals of the rates.
		ratio := atMost("time / sum of both", medianRatio(sum, together.rates), 1.15, "")
		if clients > 1 {
			ratio = noted(ratio.what, ratio.got, "")
		}
		r.add(results[bare.name])
		r.add(results[apart.name])
		r.add(together, ratio)
		return nil
	}
}

// serialRates returns, round by round, the rate of cycles that do one after the other.
func serialRates(one, other []float64) []float64 {
	rates := make([]float64, min(len(one), len(other)))
	for round := range rates {
		rates[round] = 1 / (1/one[round] + 1/other[round])
	}
	return rates
}
