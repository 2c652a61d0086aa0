package contender

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"forrst.dev/lock-operator/test/bench/measure"
)

// etcdMutex is etcd's own lock. Its clients share a connection, the cheapest way that etcd
// offers, and have a session each.
type etcdMutex struct {
	session *concurrency.Session
	mutexes map[string]*concurrency.Mutex
}

// NewEtcdMutex returns etcd's own lock as a contender.
func NewEtcdMutex(client *clientv3.Client) measure.Contender {
	return measure.Contender{Name: "etcd concurrency.Mutex", Open: func(ctx context.Context, _ int) (measure.Locker, error) {
		session, err := concurrency.NewSession(client, concurrency.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return &etcdMutex{session: session, mutexes: map[string]*concurrency.Mutex{}}, nil
	}}
}

// Acquire implements [measure.Locker].
func (e *etcdMutex) Acquire(ctx context.Context, key string) error {
	mutex, ok := e.mutexes[key]
	if !ok {
		mutex = concurrency.NewMutex(e.session, "/bench/"+key)
		e.mutexes[key] = mutex
	}
	return mutex.Lock(ctx)
}

// Release implements [measure.Locker].
func (e *etcdMutex) Release(ctx context.Context, key string) error { return e.mutexes[key].Unlock(ctx) }

// Close implements [measure.Locker].
func (e *etcdMutex) Close() { _ = e.session.Close() } // its lease ends by itself
