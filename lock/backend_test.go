package lock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// backend is a [lock.Backend] as bare as possible, into which faults can be built.
type backend struct {
	mu       sync.Mutex
	revision int64
	locks    map[v1alpha1.FullKey]*v1alpha1.Lock
	watchers map[v1alpha1.FullKey][]chan lock.Change
	requests []string
	sent     []lock.Request
	// freed is closed and replaced whenever a lock ends.
	freed chan struct{}

	// before is called ahead of each request; an error is its answer. Nil does nothing.
	before func(ctx context.Context, verb string) error
	// after is called behind a request that happened; an error replaces its answer.
	after       func(verb string) error
	isUnwatched bool
	// watching is called with the mutex held when a watch is to begin. Nil does nothing.
	watching func()
}

func newBackend() *backend {
	return &backend{locks: map[v1alpha1.FullKey]*v1alpha1.Lock{}, watchers: map[v1alpha1.FullKey][]chan lock.Change{}, freed: make(chan struct{})}
}

// set changes the service while it is in use.
func (s *backend) set(change func(*backend)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// made returns the requests since it was last called, and forgets them.
func (s *backend) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.requests
	s.requests = nil
	return made
}

// do runs one request.
func (s *backend) do(ctx context.Context, verb string, request func() error) error {
	s.mu.Lock()
	s.requests = append(s.requests, verb)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, verb); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	err := request()
	s.mu.Unlock()
	if after != nil {
		err = errors.Join(err, after(verb))
	}
	return err
}

func (s *backend) store(object *v1alpha1.Lock) *v1alpha1.Lock {
	s.revision++
	object.ResourceVersion = strconv.FormatInt(s.revision, 10)
	s.locks[object.Spec.FullKey()] = object
	s.tell(object.Spec.FullKey(), lock.Change{Lock: object.DeepCopy()})
	return object.DeepCopy()
}

func (s *backend) tell(key v1alpha1.FullKey, change lock.Change) {
	for _, watcher := range s.watchers[key] {
		watcher <- change
	}
}

func (s *backend) end(key v1alpha1.FullKey) {
	gone := s.locks[key]
	delete(s.locks, key)
	s.revision++
	gone.ResourceVersion = strconv.FormatInt(s.revision, 10)
	s.tell(key, lock.Change{Lock: gone, IsGone: true})
	close(s.freed)
	s.freed = make(chan struct{})
}

// live returns the lock of the key unless it has expired.
func (s *backend) live(key v1alpha1.FullKey) *v1alpha1.Lock {
	found := s.locks[key]
	if found == nil || !found.Spec.ExpireTime.After(time.Now()) {
		return nil
	}
	return found
}

func (s *backend) grant(namespace string, request lock.Request) *v1alpha1.Lock {
	if request.Owner == "" {
		request.Owner = lock.NewOwner()
	}
	now := v1alpha1.NewTimestamp(time.Now())
	end := v1alpha1.NewTimestamp(now.Add(request.TTL))
	return s.store(&v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(strconv.FormatInt(s.revision, 10))},
		Spec: v1alpha1.LockSpec{
			Key: request.Key, Scope: request.Scope, Function: request.Function, Owner: request.Owner, Reason: request.Reason,
			Holder: "alice", TTL: &metav1.Duration{Duration: request.TTL},
			AcquireTime: &now, RenewTime: &now, ExpireTime: &end,
		},
	})
}

func (s *backend) Acquire(ctx context.Context, namespace string, request lock.Request) (granted *v1alpha1.Lock, err error) {
	timeout := make(<-chan time.Time)
	if request.Wait != lock.WaitForever {
		timeout = time.After(request.Wait)
	}
	err = s.do(ctx, "acquire", func() error {
		s.sent = append(s.sent, request)
		for {
			found := s.live(request.FullKey())
			if found == nil {
				granted = s.grant(namespace, request)
				return nil
			}
			held := &lock.HeldError{Key: request.FullKey(), Holder: found.Spec.Holder, ExpireTime: found.Spec.ExpireTime.Time}
			if request.Wait == 0 {
				return held
			}
			freed := s.freed
			s.mu.Unlock()
			select {
			case <-freed:
				s.mu.Lock()
			case <-timeout:
				s.mu.Lock()
				return errors.Join(lock.ErrTimeout, held)
			case <-ctx.Done():
				s.mu.Lock()
				return ctx.Err()
			}
		}
	})
	return granted, err
}

// owned returns the lock if it is held under the owner token.
func (s *backend) owned(key v1alpha1.FullKey, owner string) (*v1alpha1.Lock, error) {
	found := s.locks[key]
	switch {
	case found == nil:
		return nil, lock.ErrNotHeld
	case found.Spec.Owner != owner:
		return nil, lock.ErrOwnerMismatch
	case s.live(key) == nil:
		return nil, lock.ErrExpired
	}
	return found, nil
}

func (s *backend) Renew(ctx context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (renewed *v1alpha1.Lock, err error) {
	err = s.do(ctx, "renew", func() error {
		found, err := s.owned(key, proof.Owner)
		if err != nil {
			return err
		}
		next := found.DeepCopy()
		if ttl != 0 {
			next.Spec.TTL = &metav1.Duration{Duration: ttl}
		}
		end := v1alpha1.NewTimestamp(time.Now().Add(next.Spec.TTL.Duration))
		next.Spec.ExpireTime = &end
		renewed = s.store(next)
		return nil
	})
	return renewed, err
}

func (s *backend) Release(ctx context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof) error {
	return s.do(ctx, "release", func() error {
		if _, err := s.owned(key, proof.Owner); err != nil {
			return err
		}
		s.end(key)
		return nil
	})
}

func (s *backend) ForceRelease(ctx context.Context, _ string, key v1alpha1.FullKey, _ string) error {
	return s.do(ctx, "forceRelease", func() error {
		if s.live(key) == nil {
			return lock.ErrNotHeld
		}
		s.end(key)
		return nil
	})
}

func (s *backend) Get(ctx context.Context, _ string, key v1alpha1.FullKey) (found *v1alpha1.Lock, err error) {
	err = s.do(ctx, "get", func() error {
		if found = s.live(key); found == nil {
			return lock.ErrNotHeld
		}
		return nil
	})
	return found, err
}

func (s *backend) List(ctx context.Context, _ string, filter lock.Filter) (found []v1alpha1.Lock, err error) {
	err = s.do(ctx, "list", func() error {
		for _, object := range s.locks {
			if filter.Owner == "" || filter.Owner == object.Spec.Owner {
				found = append(found, *object)
			}
		}
		return nil
	})
	return found, err
}

func (s *backend) Watch(ctx context.Context, _ string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUnwatched {
		return nil, errors.ErrUnsupported
	}
	if s.watching != nil {
		s.watching()
	}
	changes := make(chan lock.Change, 100)
	found := s.locks[key]
	changes <- lock.Change{Lock: found.DeepCopy(), IsGone: found == nil}
	s.watchers[key] = append(s.watchers[key], changes)
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers[key] = slices.DeleteFunc(s.watchers[key], func(other chan lock.Change) bool { return other == changes })
		close(changes)
	})
	return changes, nil
}

// takeOver gives the lock to another holder as if the former one did not count.
func (s *backend) takeOver(request lock.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant("default", request)
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

const key = v1alpha1.FullKey("lock:billing:report")

func by(owner string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: 30 * time.Second, Holder: "alice"}}
}

// pass lets time pass in a synctest bubble, where no test waits for it.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // steps the clock of the bubble
}
