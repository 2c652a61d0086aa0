package scenario

import (
	"context"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
)

// tokenContender returns the façade with callers who show the token. The comparison ends the process.
func tokenContender(f *lab.Facade, name, bearer string) measure.Contender {
	return measure.Contender{
		Name: name, Resource: "locks", Operator: f.Command.Process.Pid, Stop: f.Stop,
		Open: func(ctx context.Context, client int) (measure.Locker, error) {
			connection, err := contender.DialFacade(ctx, f.Address)
			if err != nil {
				return nil, err
			}
			connection.Header = "Authorization: Bearer " + bearer + "\r\n"
			return &contender.FacadeClient{Connection: connection, Owner: contender.OwnerOf(client)}, nil
		},
	}
}
