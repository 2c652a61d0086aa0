package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	expiringLocks = 10_000
	// reapers is how many deletes the reaper sends at once (controllers/reaper), and the
	// bare loop, too.
	reapers = 16
	// bystanders is how many clients acquire and release on other keys meanwhile.
	bystanders = 4
	// bystanderHold is how long they hold each lock.
	bystanderHold = 10 * time.Millisecond
	// reapTime bounds the wait for the deletes.
	reapTime = 3 * time.Minute
)

// deletions is the measurement of many deletes in a row.
type deletions struct {
	perSecond float64
	// acquire is the p99 of acquires meanwhile.
	acquire time.Duration
}

// expiry compares the reaper, after very many locks expire at once, with a loop that
// deletes as many.
func expiry(ctx context.Context, l *lab, r *report) error {
	started := time.Now()
	if err := l.fill(ctx, "delete", expiringLocks, func() time.Duration { return ttl }); err != nil {
		return err
	}
	// Half as long again as the first fill took.
	fillTime := time.Since(started) * 3 / 2
	bare, err := l.bareDeletions(ctx)
	if err != nil {
		return fmt.Errorf("bare delete loop: %w", err)
	}
	end := time.Now().Add(fillTime)
	if err := l.fill(ctx, "expire", expiringLocks, func() time.Duration { return time.Until(end) }); err != nil {
		return err
	}
	reaped, err := l.observeDeletions(ctx, "expire", func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d locks expire at once", expiringLocks)
	r.note(name, "bare delete loop", noted("deletes/s", bare.perSecond, ""), noted("acquire p99 meanwhile", milliseconds(bare.acquire), " ms"))
	r.note(name, "reaper", noted("deletes/s", reaped.perSecond, ""), noted("acquire p99 meanwhile", milliseconds(reaped.acquire), " ms"),
		atLeast("deletes/s / bare", reaped.perSecond/bare.perSecond, 0.9),
		atMost("acquire p99 / bare", float64(reaped.acquire)/float64(bare.acquire), 2, ""))
	return nil
}

// bareDeletions deletes all locks as the reaper does.
func (l *lab) bareDeletions(ctx context.Context) (deletions, error) {
	objects, err := newLockObjects(l.operator)
	if err != nil {
		return deletions{}, err
	}
	return l.observeDeletions(ctx, "delete", func(ctx context.Context) error {
		list, err := objects.list(ctx)
		if err != nil {
			return err
		}
		failures := make([]error, reapers)
		var all sync.WaitGroup
		for reaper := range reapers {
			all.Go(func() { failures[reaper] = objects.deleteSome(ctx, list, reaper) })
		}
		all.Wait()
		return errors.Join(failures...)
	})
}

// deleteSome deletes every lock whose turn it is, with the reaper's preconditions.
func (o lockObjects) deleteSome(ctx context.Context, list []v1alpha1.Lock, first int) error {
	for position := first; position < len(list); position += reapers {
		lock := &list[position]
		err := o.Delete(ctx, lock.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lock.UID, ResourceVersion: &lock.ResourceVersion},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// observeDeletions starts the deletion of the locks with the prefix and waits until etcd
// reports the last one. Bystanders acquire from the first deletion on.
func (l *lab) observeDeletions(ctx context.Context, prefix string, setOff func(context.Context) error) (deletions, error) {
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	prefix = "/registry/forrst.dev/locks/" + namespace + "/" + prefix + "-"
	events := l.etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithKeysOnly())
	failed := make(chan error, 1)
	go func() { failed <- setOff(ctx) }()

	deleted, err := awaitEvents(ctx, events, failed)
	if err != nil {
		return deletions{}, err
	}
	first := time.Now()
	aside, err := l.startAside(ctx)
	if err != nil {
		return deletions{}, err
	}
	for deleted < expiringLocks && err == nil {
		var more int
		more, err = awaitEvents(ctx, events, failed)
		deleted += more
	}
	took := time.Since(first)
	measured, asideErr := aside.stop()
	if err := errors.Join(err, asideErr); err != nil {
		return deletions{}, fmt.Errorf("%d of %d locks were deleted: %w", deleted, expiringLocks, err)
	}
	return deletions{perSecond: expiringLocks / took.Seconds(), acquire: quantile(measured.acquires, 0.99)}, nil
}

// awaitEvents waits for the next events of the watch and returns their number.
func awaitEvents(ctx context.Context, events clientv3.WatchChan, failed <-chan error) (int, error) {
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case err := <-failed:
			if err != nil {
				return 0, err
			}
			failed = nil
		case response := <-events:
			if len(response.Events) > 0 || response.Err() != nil {
				return len(response.Events), response.Err()
			}
		}
	}
}
