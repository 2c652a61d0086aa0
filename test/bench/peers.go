package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// etcdKey puts and deletes a key of etcd, with the content of a lock and the condition of a create: what every lock in a
// cluster ends in.
func etcdKey(etcd *clientv3.Client) contender {
	return contender{name: "etcd itself: put + delete", open: func(_ context.Context, number int) client {
		content := string(must(json.Marshal(stampedLock("bare", ownerOf(number)))))
		pathOf := func(key string) string { return "/bench/bare/" + key }
		return client{
			acquire: func(ctx context.Context, key string) error {
				key = pathOf(key)
				response, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, content)).Commit()
				if err == nil && !response.Succeeded {
					err = errors.New("the key exists")
				}
				return err
			},
			release: func(ctx context.Context, key string) error {
				_, err := etcd.Delete(ctx, pathOf(key))
				return err
			},
		}
	}}
}

// etcdMutex is etcd's own lock. Its clients share a connection, the cheapest way that etcd offers, and have a session each.
func etcdMutex(etcd *clientv3.Client) contender {
	return contender{name: "etcd concurrency.Mutex", open: func(ctx context.Context, _ int) client {
		session := must(concurrency.NewSession(etcd, concurrency.WithContext(ctx)))
		var mutex *concurrency.Mutex
		return client{
			acquire: func(ctx context.Context, key string) error {
				if mutex == nil { // a client has one key
					mutex = concurrency.NewMutex(session, "/bench/"+key)
				}
				return mutex.Lock(ctx)
			},
			release: func(ctx context.Context, _ string) error { return mutex.Unlock(ctx) },
			close:   func() { _ = session.Close() }, // its lease ends by itself
		}
	}}
}

// sdk returns goroutines of a Go program that uses the SDK with an identity. Its engine runs until the end of the scenario.
func (b *bench) sdk(config *rest.Config) contender {
	backend := must(engine.NewDirect(config, namespace, logr.Discard()))
	ctx, cancel := context.WithCancel(b)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = backend.Start(ctx) // without the engine, acquires fail and say why
	}()
	b.cleanup(func() {
		cancel()
		<-ended
	})
	program := lock.NewClient(backend, namespace, lock.WithTTL(lockTTL))
	return contender{name: "SDK, direct", resource: locks, open: func(context.Context, int) client {
		var held *lock.Held
		return client{
			acquire: func(ctx context.Context, key string) (err error) {
				held, err = program.Acquire(ctx, key)
				return err
			},
			release: func(ctx context.Context, _ string) error { return held.Release(ctx) },
		}
	}}
}
