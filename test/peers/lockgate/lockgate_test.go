package lockgate

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/werf/lockgate"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/peers/backend"
)

// timeout is how long a test waits for what has to happen.
const timeout = 20 * time.Second

// open returns a locker, as that of a process of its own.
func open(t *testing.T) *Locker {
	t.Helper()
	locks, done, err := backend.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return &Locker{locks: locks, ttl: 10 * time.Second, held: map[string]*lock.Held{}}
}

func acquire(t *testing.T, locker *Locker, opts lockgate.AcquireOptions) lockgate.LockHandle {
	t.Helper()
	acquired, handle, err := locker.Acquire(t.Name(), opts)
	if err != nil || !acquired {
		t.Fatalf("acquired: %t, %v", acquired, err)
	}
	return handle
}

func release(t *testing.T, locker *Locker, handle lockgate.LockHandle) {
	t.Helper()
	if err := locker.Release(handle); err != nil {
		t.Fatal(err)
	}
}

// try tells whether a lock is free.
func try(t *testing.T, locker *Locker) bool {
	t.Helper()
	acquired, handle, err := locker.Acquire(t.Name(), lockgate.AcquireOptions{NonBlocking: true})
	if err != nil {
		t.Fatal(err)
	}
	if acquired {
		release(t, locker, handle)
	}
	return acquired
}

func TestNonBlocking(t *testing.T) {
	locker, rival := open(t), open(t)
	handle := acquire(t, locker, lockgate.AcquireOptions{})
	if try(t, rival) || try(t, locker) {
		t.Error("two have the lock")
	}
	release(t, locker, handle)
	if !try(t, rival) {
		t.Error("a released lock is not free")
	}
}

func TestTimeout(t *testing.T) {
	locker, rival := open(t), open(t)
	handle := acquire(t, locker, lockgate.AcquireOptions{})
	acquired, _, err := rival.Acquire(t.Name(), lockgate.AcquireOptions{Timeout: 200 * time.Millisecond})
	if acquired || !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("acquired: %t, %v", acquired, err)
	}
	release(t, locker, handle)
}

func TestOnWait(t *testing.T) {
	locker, rival := open(t), open(t)
	handle := acquire(t, locker, lockgate.AcquireOptions{})
	waited := 0
	waiting := acquire(t, rival, lockgate.AcquireOptions{OnWaitFunc: func(name string, wait func() error) error {
		waited++
		if name != t.Name() {
			t.Errorf("waits for %q", name)
		}
		release(t, locker, handle)
		return wait()
	}})
	if waited != 1 {
		t.Errorf("OnWaitFunc was called %d times", waited)
	}
	release(t, rival, waiting)
	_ = acquire(t, locker, lockgate.AcquireOptions{OnWaitFunc: func(string, func() error) error {
		t.Error("waits for a free lock")
		return nil
	}})
}

func TestOnWaitFails(t *testing.T) {
	locker, rival := open(t), open(t)
	handle := acquire(t, locker, lockgate.AcquireOptions{})
	refused := errors.New("no patience")
	acquired, _, err := rival.Acquire(t.Name(), lockgate.AcquireOptions{OnWaitFunc: func(string, func() error) error { return refused }})
	if acquired || !errors.Is(err, refused) {
		t.Errorf("acquired: %t, %v", acquired, err)
	}
	release(t, locker, handle)
}

func TestOnLostLease(t *testing.T) {
	locker, rival := open(t), open(t)
	locker.ttl = time.Second // without a watch, the next renewal tells
	lost := make(chan lockgate.LockHandle, 1)
	handle := acquire(t, locker, lockgate.AcquireOptions{OnLostLeaseFunc: func(handle lockgate.LockHandle) error {
		lost <- handle
		return nil
	}})
	if err := rival.locks.ForceRelease(t.Context(), t.Name(), "test"); err != nil {
		t.Fatal(err)
	}
	select {
	case told := <-lost:
		if told != handle {
			t.Errorf("lost %v, told of %v", handle, told)
		}
	case <-time.After(timeout):
		t.Error("not told")
	}
	if err := locker.Release(handle); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("release of a lost lock: %v", err)
	}
}

func TestRenewed(t *testing.T) {
	locker, rival := open(t), open(t)
	locker.ttl = time.Second
	handle := acquire(t, locker, lockgate.AcquireOptions{OnLostLeaseFunc: func(lockgate.LockHandle) error {
		t.Error("lost")
		return nil
	}})
	acquired, _, err := rival.Acquire(t.Name(), lockgate.AcquireOptions{Timeout: 3 * time.Second})
	if acquired || !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("acquired: %t, %v", acquired, err)
	}
	release(t, locker, handle)
}

func TestHandles(t *testing.T) {
	locker := open(t)
	if err := locker.Release(lockgate.LockHandle{UUID: "unknown", LockName: t.Name()}); !errors.Is(err, errUnknown) {
		t.Errorf("release of an unknown handle: %v", err)
	}
	first := acquire(t, locker, lockgate.AcquireOptions{})
	release(t, locker, first)
	second := acquire(t, locker, lockgate.AcquireOptions{})
	if first == second {
		t.Error("two acquisitions have one handle")
	}
	if err := locker.Release(first); !errors.Is(err, errUnknown) {
		t.Errorf("second release: %v", err)
	}
	release(t, locker, second)
}

func TestWithAcquire(t *testing.T) {
	locker, rival := open(t), open(t)
	failed := errors.New("failed")
	err := lockgate.WithAcquire(locker, t.Name(), lockgate.AcquireOptions{}, func(acquired bool) error {
		if !acquired || try(t, rival) {
			t.Error("works without the lock")
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("returned %v", err)
	}
	if !try(t, rival) {
		t.Error("not released")
	}
}

func TestExclusive(t *testing.T) {
	lockers := []*Locker{open(t), open(t), open(t)}
	const turns = 4
	var working, done atomic.Int32
	var workers sync.WaitGroup
	for i := range 2 * len(lockers) {
		locker := lockers[i%len(lockers)]
		workers.Go(func() {
			for range turns {
				if err := lockgate.WithAcquire(locker, t.Name(), lockgate.AcquireOptions{}, func(bool) error {
					if working.Add(1) != 1 {
						t.Error("two work at once")
					}
					done.Add(1)
					working.Add(-1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	if want := 2 * len(lockers) * turns; int(done.Load()) != want {
		t.Errorf("%d of %d turns", done.Load(), want)
	}
}

func TestShared(t *testing.T) {
	locker, rival := open(t), open(t)
	first := acquire(t, locker, lockgate.AcquireOptions{Shared: true})
	second := acquire(t, rival, lockgate.AcquireOptions{Shared: true})
	release(t, locker, first)
	release(t, rival, second)
}
