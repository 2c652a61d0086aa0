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

// directCreates measures the cost of the webhook for a create.
func directCreates(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		bare, err := contender.NewDirectCreate("create + delete, not admitted", l.Operator, l.Operator, contender.StampedLock)
		if err != nil {
			return err
		}
		admitted, err := contender.NewDirectCreate("create, admitted + delete", l.User, l.Operator, contender.DeclaredLock)
		if err != nil {
			return err
		}
		results, err := l.Compare(ctx, &measure.Comparison{
			Name: fmt.Sprintf("direct create, %d", clients), Clients: clients,
			Rounds: l.Options.RoundsOf(20), Slice: 300 * time.Millisecond,
			Contenders: []measure.Contender{bare, admitted},
		})
		if err != nil {
			return err
		}
		without, with := results[bare.Name], results[admitted.Name]
		for _, each := range []*measure.Result{without, with} {
			each.Total.Latencies = each.Total.Acquires
		}
		r.Add(without)
		r.Add(with,
			report.AtMost("create with webhook / without, p50", measure.Ratio(with, without, measure.Acquire), 1.6, ""),
			report.AtMost("reads per create", readsPerCycle(with), 0.01, ""))
		return nil
	}
}

// readsPerCycle returns the reads of the first round per cycle. What else uses the machine does not change it.
func readsPerCycle(of *measure.Result) measure.Spread {
	return measure.Single(of.Requests.Reads/float64(max(1, of.Counted)), measure.Window{})
}
