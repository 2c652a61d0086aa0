package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// Names of the contenders of builds.
const (
	thisBuild    = "façade, this commit"
	anotherBuild = "façade, -against"
)

// builds compares this commit with another one. Each has a cluster of its own, with its own definition of a Lock and
// its own webhooks, and the clusters take turns.
func builds(ctx context.Context, l *lab.Lab, r *report.Report) (err error) {
	another, err := l.OpenAgainst(ctx)
	if err != nil {
		return fmt.Errorf("start the cluster of %s, which must have been built: %w", l.Options.Against, err)
	}
	defer func() { err = errors.Join(err, another.Close()) }()
	for _, each := range []struct {
		name, cycle string
		isHot       bool
		block       time.Duration
		most        float64
	}{
		{"acquire + release", "acquire + release", false, 0, 0.80},
		{"hand-off", "hand-off", true, blockFor, 0.65},
	} {
		contenders := []measure.Contender{
			contenderOf(l, thisBuild, each.block), contenderOf(another, anotherBuild, each.block),
		}
		results, err := l.Compare(ctx, &measure.Comparison{
			Name: "builds, " + each.name + ", 16", Clients: 16, IsHot: each.isHot,
			Rounds: l.Options.RoundsOf(20), Slice: 500 * time.Millisecond, Contenders: contenders,
		})
		if err != nil {
			return err
		}
		this, other := results[thisBuild], results[anotherBuild]
		r.Add(other)
		r.Add(this,
			report.AtMost("API server processor time per "+each.cycle+" / -against",
				measure.Ratio(this, other, measure.Processor(measure.APIServerProgram)), each.most, ""),
			report.Noted("operator processor time per "+each.cycle+" / -against",
				measure.Ratio(this, other, measure.Processor(measure.OperatorProgram)), ""),
			report.AtLeast("cycles / -against", measure.Ratio(this, other, measure.Rate), 0.97))
	}
	return nil
}

// contenderOf returns the façade of a cluster.
func contenderOf(at *lab.Lab, name string, block time.Duration) measure.Contender {
	site := at.Site()
	facade := contender.NewFacade(at.Cluster.Facade, block)
	facade.Name, facade.Site = name, &site
	return facade
}
