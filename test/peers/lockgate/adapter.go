// Package lockgate is lockgate's Locker with our locks. The library has no suite of its own for its lockers, so the
// tests here are of what its documentation promises, without shared locks.
package lockgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/werf/lockgate"

	"forrst.dev/lock-operator/lock"
)

// errUnknown means that a handle is not of a lock that the locker has.
var errUnknown = errors.New("unknown lock handle")

// Locker implements [lockgate.Locker].
type Locker struct {
	locks *lock.Client
	ttl   time.Duration

	mu   sync.Mutex
	held map[string]*lock.Held
}

var _ lockgate.Locker = (*Locker)(nil)

// Acquire implements [lockgate.Locker].
func (l *Locker) Acquire(name string, opts lockgate.AcquireOptions) (bool, lockgate.LockHandle, error) {
	if opts.Shared {
		return false, lockgate.LockHandle{}, fmt.Errorf("shared locks: %w", errors.ErrUnsupported)
	}
	ctx := context.Background()
	held, err := l.locks.TryAcquire(ctx, name, lock.WithTTL(l.ttl))
	if errors.Is(err, lock.ErrHeld) {
		if opts.NonBlocking {
			return false, lockgate.LockHandle{}, nil
		}
		wait := func() error {
			held, err = l.locks.Acquire(ctx, name, waitOptions(l.ttl, opts.Timeout)...)
			return err
		}
		if opts.OnWaitFunc != nil {
			err = opts.OnWaitFunc(name, wait)
		} else {
			err = wait()
		}
	}
	if err != nil {
		return false, lockgate.LockHandle{}, err
	}
	handle := lockgate.LockHandle{UUID: held.Owner(), LockName: name}
	l.mu.Lock()
	l.held[handle.UUID] = held
	l.mu.Unlock()
	if opts.OnLostLeaseFunc != nil {
		go func() {
			<-held.Done()
			if !errors.Is(held.Err(), lock.ErrReleased) {
				_ = opts.OnLostLeaseFunc(handle)
			}
		}()
	}
	return true, handle, nil
}

func waitOptions(ttl, timeout time.Duration) []lock.Option {
	options := []lock.Option{lock.WithTTL(ttl)}
	if timeout > 0 {
		options = append(options, lock.WithWait(timeout))
	}
	return options
}

// Release implements [lockgate.Locker].
func (l *Locker) Release(handle lockgate.LockHandle) error {
	l.mu.Lock()
	held := l.held[handle.UUID]
	delete(l.held, handle.UUID)
	l.mu.Unlock()
	if held == nil {
		return errUnknown
	}
	return held.Release(context.Background())
}
