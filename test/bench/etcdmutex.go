package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdMutex is etcd's own lock. Its clients share a connection, the cheapest way that etcd
// offers, and have a session each.
type etcdMutex struct {
	session *concurrency.Session
	mutexes map[string]*concurrency.Mutex
}

func newEtcdMutex(client *clientv3.Client) contender {
	return contender{name: "etcd concurrency.Mutex", open: func(ctx context.Context, _ int) (locker, error) {
		session, err := concurrency.NewSession(client, concurrency.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return &etcdMutex{session: session, mutexes: map[string]*concurrency.Mutex{}}, nil
	}}
}

func (e *etcdMutex) acquire(ctx context.Context, key string) error {
	mutex, ok := e.mutexes[key]
	if !ok {
		mutex = concurrency.NewMutex(e.session, "/bench/"+key)
		e.mutexes[key] = mutex
	}
	return mutex.Lock(ctx)
}

func (e *etcdMutex) release(ctx context.Context, key string) error { return e.mutexes[key].Unlock(ctx) }

func (e *etcdMutex) close() { _ = e.session.Close() } // its lease ends by itself
