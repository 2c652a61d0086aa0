package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
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
	// window says what else happened meanwhile.
	window measure.Window
	// acquire is the p99 of acquires meanwhile.
	acquire time.Duration
}

// expiry compares the reaper, after very many locks expire at once, with a loop that
// deletes as many.
func expiry(ctx context.Context, l *lab.Lab, r *report.Report) error {
	started := time.Now()
	if err := fill(ctx, l, "delete", expiringLocks, func() time.Duration { return contender.TTL }); err != nil {
		return err
	}
	// Half as long again as the first fill took.
	fillTime := time.Since(started) * 3 / 2
	bare, err := bareDeletions(ctx, l)
	if err != nil {
		return fmt.Errorf("bare delete loop: %w", err)
	}
	end := time.Now().Add(fillTime)
	if err := fill(ctx, l, "expire", expiringLocks, func() time.Duration { return time.Until(end) }); err != nil {
		return err
	}
	reaped, err := observeDeletions(ctx, l, "expire", expiringLocks, reapTime, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d locks expire at once", expiringLocks)
	r.Note(name, "bare delete loop", bare.figures()...)
	window := reaped.window.Worst(bare.window)
	r.Note(name, "reaper", append(reaped.figures(),
		report.AtLeast("deletes/s / bare", measure.Single(reaped.perSecond/bare.perSecond, window), 0.9),
		report.AtMost("acquire p99 / bare", measure.Single(float64(reaped.acquire)/float64(bare.acquire), window), 2, ""))...)
	return nil
}

func (d deletions) figures() []report.Figure {
	return []report.Figure{
		report.Noted("deletes/s", measure.Single(d.perSecond, d.window), ""),
		report.Noted("acquire p99 meanwhile", measure.Single(measure.Milliseconds(d.acquire), d.window), " ms"),
	}
}

// bareDeletions deletes all locks as the reaper does.
func bareDeletions(ctx context.Context, l *lab.Lab) (deletions, error) {
	objects, err := contender.NewLockObjects(l.Operator)
	if err != nil {
		return deletions{}, err
	}
	return observeDeletions(ctx, l, "delete", expiringLocks, reapTime, func(ctx context.Context) error {
		list, err := objects.All(ctx)
		if err != nil {
			return err
		}
		failures := make([]error, reapers)
		var all sync.WaitGroup
		for reaper := range reapers {
			all.Go(func() { failures[reaper] = deleteSome(ctx, objects, list, reaper) })
		}
		all.Wait()
		return errors.Join(failures...)
	})
}

// deleteSome deletes every lock whose turn it is, with the reaper's preconditions.
func deleteSome(ctx context.Context, o contender.LockObjects, list []v1alpha1.Lock, first int) error {
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
func observeDeletions(ctx context.Context, l *lab.Lab, prefix string, count int, within time.Duration, setOff func(context.Context) error) (deletions, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	prefix = "/registry/forrst.dev/locks/" + contender.Namespace + "/" + prefix + "-"
	events := l.Etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithKeysOnly())
	failed := make(chan error, 1)
	go func() { failed <- setOff(ctx) }()

	deleted, err := awaitEvents(ctx, events, failed)
	if err != nil {
		return deletions{}, err
	}
	end, err := l.Machine.WatchLoaded()
	if err != nil {
		return deletions{}, err
	}
	first := time.Now()
	aside, err := startAside(ctx, l)
	if err != nil {
		return deletions{}, err
	}
	for deleted < count && err == nil {
		var more int
		more, err = awaitEvents(ctx, events, failed)
		deleted += more
	}
	took := time.Since(first)
	window, windowErr := end()
	measured, asideErr := aside.stop()
	if err := errors.Join(err, asideErr, windowErr); err != nil {
		return deletions{}, fmt.Errorf("%d of %d locks were deleted: %w", deleted, count, err)
	}
	return deletions{
		perSecond: float64(count) / took.Seconds(), acquire: measure.Quantile(measured.Acquires, 0.99), window: window,
	}, nil
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
