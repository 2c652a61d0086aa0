package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// fillers is how many connections acquire at once to create many locks.
const fillers = 32

// fill acquires many locks through the façade and keeps them. The ttl of each is the
// result of life at that moment.
func (l *lab) fill(ctx context.Context, prefix string, count int, life func() time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for filler := range fillers {
		all.Go(func() {
			if err := l.fillSome(ctx, prefix, filler, count, life); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (l *lab) fillSome(ctx context.Context, prefix string, first, count int, life func() time.Duration) error {
	connection, err := dialFacade(ctx, l.cluster.facade)
	if err != nil {
		return err
	}
	defer connection.close()
	for number := first; number < count; number += fillers {
		lives := life()
		if lives <= 0 {
			return errors.New("this machine is too slow to acquire so many locks before they expire")
		}
		body := acquireBody(fmt.Sprintf("%s-%d", prefix, number), ownerOf(number), lives, 0)
		if err := connection.call(ctx, connection.request(body), []byte(`"acquired":true`)); err != nil {
			return err
		}
	}
	return nil
}
