package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

const key = v1alpha1.FullKey("lock:billing:report")

// newBackend returns a backend that records its calls.
func newBackend() *locktest.Backend {
	return locktest.New(locktest.WithHolder("alice"), locktest.WithRecord())
}

// requests returns the methods that were called since it was last called. A Watch, which a
// goroutine of its own begins, is left out.
func requests(service *locktest.Backend) []locktest.Verb {
	var made []locktest.Verb
	for _, call := range service.Calls() {
		if call.Verb != locktest.Watch {
			made = append(made, call.Verb)
		}
	}
	return made
}

// acquisitions returns the requests of the calls of Acquire, as requests does.
func acquisitions(service *locktest.Backend) []lock.Request {
	var sent []lock.Request
	for _, call := range service.Calls() {
		if call.Verb == locktest.Acquire {
			sent = append(sent, call.Request)
		}
	}
	return sent
}

func before(hook locktest.Hook) locktest.Hooks { return locktest.Hooks{Before: hook} }

func after(hook locktest.Hook) locktest.Hooks { return locktest.Hooks{After: hook} }

// delaying delays the answers of the methods, or of all if there are none.
func delaying(d time.Duration, verbs ...locktest.Verb) locktest.Hook {
	return func(_ context.Context, call locktest.Call) error {
		if len(verbs) == 0 || slices.Contains(verbs, call.Verb) {
			pass(d)
		}
		return nil
	}
}

// unwatched is a backend that cannot watch.
var unwatched = before(locktest.Failing(locktest.Watch, errors.ErrUnsupported))

// watched is a backend whose watches send what the test sends.
type watched struct {
	*locktest.Backend
	changes chan lock.Change
}

func (w watched) Watch(context.Context, string, v1alpha1.FullKey) (<-chan lock.Change, error) {
	return w.changes, nil
}

// takeOver expires the lock if it is held, and acquires it.
func takeOver(t *testing.T, service *locktest.Backend, owner string) {
	t.Helper()
	_ = service.Expire("default", key)
	if _, err := service.Acquire(t.Context(), "default", by(owner)); err != nil {
		t.Fatal(err)
	}
}

func by(owner string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: 30 * time.Second}}
}

func mustHold(t *testing.T, client *lock.Client, options ...lock.Option) *lock.Held {
	t.Helper()
	held, err := client.Acquire(t.Context(), "billing:report", options...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func mustRelease(t *testing.T, held *lock.Held) {
	t.Helper()
	if err := held.Release(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// lateClock is ahead of the timers by as much as they are late.
type lateClock struct {
	clock.RealClock
	late atomic.Int64
}

func (c *lateClock) Now() time.Time { return time.Now().Add(time.Duration(c.late.Load())) }

// pass advances the clock of a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // advances the clock of the bubble
}
