package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// takeAll is take for several keys: it takes all locks or none, and the wait bounds all waits together. Before each wait it says
// who holds the lock.
func takeAll(ctx context.Context, s *session.Session, backend lock.Backend, keys []string, wait time.Duration, options ...lock.Option) (*lock.HeldAll, error) {
	for _, key := range keys {
		if err := checkKey(ctx, s, key); err != nil {
			return nil, err
		}
	}
	if err := checkOwnHolders(ctx, s, backend, keys); err != nil {
		return nil, err
	}
	client := lock.NewClient(announcer{backend, s}, s.Namespace(), options...)
	return client.AcquireAll(ctx, keys, lock.WithWait(wait))
}

// checkOwnHolders is checkOwnHolder for each key, before any is tried: AcquireAll might wait for the other keys first. Outside of
// runs and Pods it makes no requests.
func checkOwnHolders(ctx context.Context, s *session.Session, backend lock.Backend, keys []string) error {
	if len(outerRuns(s)) == 0 && s.Pod() == (session.Pod{}) {
		return nil
	}
	for _, key := range keys {
		fullKey := v1alpha1.FullKeyOf(key)
		current, err := backend.Get(ctx, s.Namespace(), fullKey)
		if errors.Is(err, lock.ErrNotHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if own := checkOwnHolder(s, fullKey, current); own != nil {
			return own
		}
	}
	return nil
}

// announcer is a backend that says who holds a lock before it waits for it.
type announcer struct {
	lock.Backend

	session *session.Session
}

// Acquire implements [lock.Backend].
func (a announcer) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	began, try := a.session.Clock.Now(), request
	try.Wait = 0
	granted, err := a.Backend.Acquire(ctx, namespace, try)
	if request.Wait == 0 || !errors.Is(err, lock.ErrHeld) {
		return granted, err
	}
	fmt.Fprintf(a.session.ErrOut, "waiting: %s\n", busy(ctx, a.session, err))
	if request.Wait != lock.WaitForever {
		request.Wait = max(0, request.Wait-a.session.Clock.Since(began))
	}
	return a.Backend.Acquire(ctx, namespace, request)
}

// runLocks are the locks of a run, at least one. It implements [supervise.Hold]: the hold lasts for as long as each of them.
type runLocks struct {
	held []*lock.Held
	// fencingToken fences all of them.
	fencingToken int64
	clock        clock.PassiveClock
}

// Left implements [supervise.Hold].
func (r *runLocks) Left() time.Duration { return left(r.byTime()[0], r.clock.Now()) }

// Done implements [supervise.Hold].
func (r *runLocks) Done() <-chan struct{} {
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	for _, each := range r.held {
		go func() { // until the release, which ends each lock
			<-each.Done()
			end()
		}()
	}
	return ended
}

// byTime returns the locks in the order in which they end unless they are renewed. Those that have ended come first.
func (r *runLocks) byTime() []*lock.Held {
	now := r.clock.Now()
	return slices.SortedStableFunc(slices.Values(r.held), func(a, b *lock.Held) int { return cmp.Compare(left(a, now), left(b, now)) })
}

func left(held *lock.Held, now time.Time) time.Duration {
	if held.Err() != nil {
		return 0
	}
	return servertime.Left(held.Deadline(), now)
}

// ending is how a lock of a run ended.
type ending struct {
	key string
	// err is what the release has returned.
	err error
}

// wasLost reports whether the release found that the lock was not held any more.
func (e ending) wasLost() bool {
	return errors.Is(e.err, lock.ErrNotHeld) || errors.Is(e.err, lock.ErrOwnerMismatch) ||
		errors.Is(e.err, lock.ErrForceReleased) || errors.Is(e.err, lock.ErrTakenOver)
}

// release ends all locks at once: a service that does not answer delays the end of the run by one release, not by one for each
// lock. The endings are in the order of byTime.
func (r *runLocks) release(ctx context.Context) []ending {
	byTime := r.byTime()
	endings := make([]ending, len(byTime))
	var releases sync.WaitGroup
	for index, each := range byTime {
		releases.Go(func() { endings[index] = ending{each.Key().Bare(), each.Release(ctx)} })
	}
	releases.Wait()
	return endings
}
