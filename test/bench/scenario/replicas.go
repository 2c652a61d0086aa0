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

// Names of the contenders of throughReplicas.
const (
	throughOne   = "through one replica"
	throughThree = "through three replicas"
)

// throughReplicas lets clients contend for one key through a replica of the façade, and spread over three that share
// its line.
func throughReplicas(clients int) func(context.Context, *lab.Lab, *report.Report) error {
	return func(ctx context.Context, l *lab.Lab, r *report.Report) error {
		c := &measure.Comparison{
			Name: fmt.Sprintf("hot key through replicas, %d", clients), Clients: clients, IsHot: true,
			Rounds: l.Options.RoundsOf(20), Slice: 2 * time.Second,
		}
		for _, each := range []struct {
			name   string
			number int
		}{{throughOne, 1}, {throughThree, 3}} {
			replicas, err := l.StartReplicas(ctx, each.number)
			if err != nil {
				for _, started := range c.Contenders {
					started.Stop()
				}
				return err
			}
			c.Contenders = append(c.Contenders, replicasContender(replicas, each.name))
		}
		results, err := l.Compare(ctx, c)
		if err != nil {
			return err
		}
		one, three := results[throughOne], results[throughThree]
		r.Add(one)
		r.Add(three, report.AtLeast("hand-offs / through one", measure.Ratio(three, one, measure.Rate), 0.95))
		return nil
	}
}

// replicasContender returns replicas with callers spread over them. The comparison ends the replicas.
func replicasContender(replicas *lab.Replicas, name string) measure.Contender {
	return measure.Contender{
		Name: name, Resource: "locks", Operator: replicas.Pid(), Stop: replicas.Stop,
		Open: func(ctx context.Context, client int) (measure.Locker, error) {
			connection, address, err := replicas.Dial(ctx, client)
			if err != nil {
				return nil, err
			}
			return contender.NewWaitingClient(contender.NewFacadeConnection(connection, address), contender.OwnerOf(client), blockFor), nil
		},
	}
}
