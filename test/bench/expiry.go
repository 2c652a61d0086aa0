package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	expiringLocks = 10_000
	// reapers is how many deletes the reaper sends at once (controllers/reaper), and the bare loop, too.
	reapers = 16
)

// expiry compares the reaper, after very many locks expire at once, with a loop that deletes as many.
func expiry(b *bench) {
	started := time.Now()
	created := b.fill("delete", expiringLocks, lockTTL, started.Add(lockTTL))
	// Half as long again as the first fill took.
	fillTime := time.Since(started) * 3 / 2
	objects := newObjects(b.operator, lockType, namespace)
	bare := b.observeDeletions("delete", func(ctx context.Context) error {
		return inParallel(ctx, reapers, expiringLocks, func(ctx context.Context, number int) error {
			lock := created[number]
			return objects.Delete(ctx, lock.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &lock.UID, ResourceVersion: &lock.ResourceVersion},
			})
		})
	})
	b.fill("expire", expiringLocks, lockTTL, time.Now().Add(fillTime))
	reaped := b.observeDeletions("expire", func(context.Context) error { return nil })
	scenario := fmt.Sprintf("%d locks expire at once", expiringLocks)
	for i, d := range []deletions{bare, reaped} {
		b.note(scenario, []string{"bare delete loop", "reaper"}[i],
			noted("deletes/s", single(d.perSecond, d.disturbance), ""), noted("acquire p99 meanwhile", single(d.acquire, d.disturbance), " ms"))
	}
	both := bare.disturbance + reaped.disturbance
	b.note(scenario, "reaper",
		atLeast("deletes/s / bare", single(reaped.perSecond/bare.perSecond, both), 0.9),
		atMost("acquire p99 / bare", single(reaped.acquire/bare.acquire, both), 2, ""))
}

// deletions is the measurement of many deletes in a row, beside clients that acquire and release.
type deletions struct {
	perSecond float64
	// acquire is the p99 of acquires meanwhile, in milliseconds.
	acquire     float64
	disturbance string
}

// observeDeletions sets off the deletion of the locks with the prefix and waits until etcd reports the last one. Clients
// acquire from the first deletion on.
func (b *bench) observeDeletions(prefix string, setOff func(context.Context) error) (d deletions) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(b)
	defer cancel(nil)
	path := "/registry/" + lockType.Group + "/locks/" + namespace + "/" + prefix + "-"
	events := b.etcd.Watch(ctx, path, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithKeysOnly())
	all.Go(func() {
		if err := setOff(ctx); err != nil {
			cancel(err)
		}
	})
	deleted := 0
	awaitDeleted := func(count int) {
		for deleted < count {
			select {
			case <-ctx.Done():
				check(fmt.Errorf("%d locks were deleted: %w", deleted, context.Cause(ctx)))
			case response := <-events:
				check(response.Err())
				deleted += len(response.Events)
			}
		}
	}
	awaitDeleted(1)
	first := time.Now()
	var measured measurement
	d.disturbance = b.machine.during(func() {
		measured = b.beside(func() {
			awaitDeleted(expiringLocks)
			d.perSecond = expiringLocks / time.Since(first).Seconds()
		})
	})
	d.acquire = milliseconds(quantile(measured.acquires, 0.99))
	return d
}
