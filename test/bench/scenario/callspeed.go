package scenario

import (
	"context"
	"fmt"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// pings compares the cheapest function with the cheapest server.
func pings(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		echo := contender.NewCaller("bare net/http JSON echo", l.Echo.Address, contender.PingBody, `"forrst.ping"`)
		ping := contender.NewCaller(contender.FacadeName, l.Cluster.Facade, contender.PingBody, `"status":"healthy"`)
		results, err := l.Compare(ctx, &measure.Comparison{
			Name: fmt.Sprintf("ping, %d", clients), Clients: clients,
			Rounds: l.Options.RoundsOf(20), Slice: 300 * time.Millisecond, Contenders: []measure.Contender{echo, ping},
		})
		if err != nil {
			return err
		}
		bare, facade := results[echo.Name], results[ping.Name]
		r.Add(bare)
		r.Add(facade, report.AtLeast("façade / echo", measure.Ratio(facade, bare, measure.Rate), 0.5))
		return nil
	}
}

// routedCalls compares a call inside a lock with the call and the lock by themselves.
func routedCalls(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		const result = `"sku":"X9"`
		rounds, slice := l.Options.RoundsOf(16), 500*time.Millisecond
		if clients > 1 {
			// No bound depends on it. A turn must be several times as long as a cycle.
			rounds, slice = l.Options.RoundsOf(8), 800*time.Millisecond
		}
		bare := contender.NewCaller("bare routed call", l.Cluster.Facade, contender.RoutedBody, result)
		apart := contender.NewFacade(l.Cluster.Facade, 0)
		apart.Name = "acquire + release"
		locked := contender.NewCaller("routed call with a lock", l.Cluster.Facade, contender.LockedBody, result, `"acquired":true`)
		locked.Resource = "locks"
		results, err := l.Compare(ctx, &measure.Comparison{
			Name: fmt.Sprintf("routed call, %d", clients), Clients: clients,
			Rounds: rounds, Slice: slice, Contenders: []measure.Contender{bare, apart, locked},
		})
		if err != nil {
			return err
		}
		together := results[locked.Name]
		ratio := report.AtMost("time / sum of both", measure.RatioToSum(measure.Time, together, results[bare.Name], results[apart.Name]), 1.15, "")
		if clients > 1 {
			ratio = report.Noted(ratio.What, ratio.Spread, "")
		}
		r.Add(results[bare.Name])
		r.Add(results[apart.Name])
		r.Add(together, ratio)
		return nil
	}
}
