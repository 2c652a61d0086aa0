package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
)

// fillers is how many connections acquire at once to create many locks.
const fillers = 32

// fill acquires many locks through the façade and keeps them. The ttl of each is the
// result of life at that moment.
func fill(ctx context.Context, l *lab.Lab, prefix string, count int, life func() time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for filler := range fillers {
		all.Go(func() {
			if err := fillSome(ctx, l, prefix, filler, count, life); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func fillSome(ctx context.Context, l *lab.Lab, prefix string, first, count int, life func() time.Duration) error {
	connection, err := contender.DialFacade(ctx, l.Cluster.Facade)
	if err != nil {
		return err
	}
	defer connection.Close()
	for number := first; number < count; number += fillers {
		lives := life()
		if lives <= 0 {
			return errors.New("this machine is too slow to acquire so many locks before they expire")
		}
		body := contender.AcquireBody(fmt.Sprintf("%s-%d", prefix, number), contender.OwnerOf(number), lives, 0)
		if err := connection.Call(ctx, connection.Request(body), []byte(`"acquired":true`)); err != nil {
			return err
		}
	}
	return nil
}
