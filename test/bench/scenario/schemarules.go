package scenario

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// schemaRules measures what the rules of a Lock's schema cost a write: of two types that no one watches and no webhook
// knows, one has them.
func schemaRules(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		if err := l.DefineCopies(ctx); err != nil {
			return fmt.Errorf("define the types: %w", err)
		}
		for _, each := range []struct {
			name string
			of   func(name string, config *rest.Config, of contender.BareType) (measure.Contender, error)
		}{{"create + delete", contender.NewBareObject}, {"update", contender.NewBareUpdates}} {
			without, err := each.of("schema of a Lock without rules: "+each.name, l.Operator, contender.Ruleless)
			if err != nil {
				return err
			}
			// Each client updates an object of its own.
			without.Clients = clients
			with, err := each.of("schema of a Lock: "+each.name, l.Operator, contender.Ruled)
			if err != nil {
				return err
			}
			with.Clients = clients
			results, err := l.Compare(ctx, &measure.Comparison{
				Name: fmt.Sprintf("schema's rules, %d", clients), Clients: clients,
				Rounds: l.Options.RoundsOf(20), Slice: 300 * time.Millisecond,
				Contenders: []measure.Contender{without, with},
			})
			if err != nil {
				return err
			}
			r.Add(results[without.Name])
			r.Add(results[with.Name],
				report.AtLeast("cycles / without rules", measure.Ratio(results[with.Name], results[without.Name], measure.Rate), 0.95),
				report.Noted("API server processor time / without rules",
					measure.Ratio(results[with.Name], results[without.Name], measure.Processor(measure.APIServerProgram)), ""))
		}
		return nil
	}
}
