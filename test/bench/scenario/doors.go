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

// doors compares an acquire and a release through the two doors.
func doors(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		results, err := l.Compare(ctx, &measure.Comparison{
			Name: fmt.Sprintf("doors, %d", clients), Clients: clients,
			Rounds: l.Options.RoundsOf(24), Slice: 300 * time.Millisecond,
			Contenders: []measure.Contender{contender.NewFacade(l.Cluster.Facade, 0), contender.NewREST(l.Cluster.Facade)},
		})
		if err != nil {
			return err
		}
		forrst, rest := results[contender.FacadeName], results[contender.RESTName]
		r.Add(forrst)
		r.Add(rest, report.AtMost("time / Forrst", measure.Ratio(rest, forrst, measure.Time), 1.05, ""))
		return nil
	}
}

// lists compares the pages of the REST door with the list of the Forrst door, in a namespace with many
// locks.
func lists(ctx context.Context, l *lab.Lab, r *report.Report) error {
	if err := fill(ctx, l, "listed", contender.ListedLocks, func() time.Duration { return time.Hour }); err != nil {
		return err
	}
	whole := contender.NewCaller("Forrst list", l.Cluster.Facade, func(int, string) []byte {
		return []byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"urn:k8s:forrst:ext:atomic-lock:fn:list"}}`)
	}, "listed-0", "listed-1999")
	page := measure.Contender{Name: "REST page of 500", Open: contender.OpenPages(l.Cluster.Facade, false)}
	all := measure.Contender{Name: "REST, all pages", Open: contender.OpenPages(l.Cluster.Facade, true)}
	results, err := l.Compare(ctx, &measure.Comparison{
		Name: fmt.Sprintf("list of %d", contender.ListedLocks), Clients: 1,
		Rounds: l.Options.RoundsOf(6), Slice: time.Second, Contenders: []measure.Contender{whole, page, all},
	})
	if err != nil {
		return err
	}
	r.Add(results[whole.Name])
	r.Add(results[page.Name])
	r.Add(results[all.Name])
	return nil
}
