//go:build peers

// Package concurrency is what etcd's mutex becomes with our locks. It is compiled in a copy of the library that has
// lost its own; sessions and their leases stay those of etcd, and the locks of a session end with it.
package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	v3 "go.etcd.io/etcd/client/v3"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/peers/backend"
)

// Mutex is a lock of a session.
type Mutex struct {
	s    *Session
	pfx  string
	held *lock.Held
}

// NewMutex returns a mutex that is not locked.
func NewMutex(s *Session, pfx string) *Mutex { return &Mutex{s: s, pfx: pfx} }

// Lock waits for the lock.
func (m *Mutex) Lock(ctx context.Context) error { return m.lock(ctx, (*lock.Client).Acquire) }

// TryLock takes the lock if it is free.
func (m *Mutex) TryLock(ctx context.Context) error {
	err := m.lock(ctx, (*lock.Client).TryAcquire)
	if errors.Is(err, lock.ErrHeld) {
		return ErrLocked
	}
	return err
}

type acquire func(*lock.Client, context.Context, string, ...lock.Option) (*lock.Held, error)

func (m *Mutex) lock(ctx context.Context, acquire acquire) error {
	opened, err := connect(m.s.Client())
	if err != nil {
		return err
	}
	slot := slot{session: m.s, key: m.pfx}
	if held, ok := opened.held.Load(slot); ok && held.(*lock.Held).Err() == nil {
		return fmt.Errorf("%w: %s", lock.ErrDoubleLock, m.pfx)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.s.Ctx(), cancel)()
	held, err := acquire(opened.locks, waiting, m.pfx, lock.WithTTL(time.Duration(m.s.opts.ttl)*time.Second))
	switch {
	case err != nil && m.s.Ctx().Err() != nil:
		return ErrSessionExpired
	case err != nil:
		return err
	}
	m.held = held
	opened.held.Store(slot, held)
	opened.holds.Go(func() {
		select {
		case <-m.s.Done():
			// The session has no way to tell what became of its locks.
			_ = held.Release(context.Background())
		case <-held.Done():
		}
		opened.held.CompareAndDelete(slot, held)
	})
	return nil
}

// Unlock ends the lock.
func (m *Mutex) Unlock(ctx context.Context) error {
	if m.held == nil {
		return ErrLockReleased
	}
	err := m.held.Release(ctx)
	if err == nil {
		m.held = nil
	}
	return err
}

// Key returns the key of the lock.
func (m *Mutex) Key() string { return m.pfx }

// Header returns the revision of the grant.
func (m *Mutex) Header() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: m.held.FencingToken()}
}

// connection is what the mutexes of one client of etcd share, which ends with that client.
type connection struct {
	locks *lock.Client
	// held has the *lock.Held of each slot.
	held sync.Map
	// holds are the goroutines that end locks with their sessions.
	holds sync.WaitGroup
}

// slot is a key that a session may lock once.
type slot struct {
	session *Session
	key     string
}

var (
	connecting  sync.Mutex
	connections = map[*v3.Client]*connection{}
)

func connect(client *v3.Client) (*connection, error) {
	connecting.Lock()
	defer connecting.Unlock()
	if opened, ok := connections[client]; ok {
		return opened, nil
	}
	locks, done, err := backend.Open()
	if err != nil {
		return nil, err
	}
	opened := &connection{locks: locks}
	connections[client] = opened
	context.AfterFunc(client.Ctx(), func() {
		opened.holds.Wait()
		done()
	})
	return opened, nil
}
