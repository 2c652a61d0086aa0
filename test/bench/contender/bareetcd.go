package contender

import (
	"context"
	"encoding/json"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"forrst.dev/lock-operator/test/bench/measure"
)

// etcdKey puts and deletes a key of etcd, with the content of a lock and the condition of a create: what every lock in
// a cluster ends in.
type etcdKey struct {
	client  *clientv3.Client
	content string
}

// NewEtcdKey returns etcd itself as a contender.
func NewEtcdKey(client *clientv3.Client) measure.Contender {
	return measure.Contender{Name: "etcd itself: put + delete", Open: func(_ context.Context, number int) (measure.Locker, error) {
		content, err := json.Marshal(StampedLock("bare", OwnerOf(number)))
		return &etcdKey{client: client, content: string(content)}, err
	}}
}

func etcdKeyOf(key string) string { return "/bench/bare/" + key }

// Acquire implements [measure.Locker].
func (e *etcdKey) Acquire(ctx context.Context, key string) error {
	key = etcdKeyOf(key)
	response, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, e.content)).Commit()
	if err == nil && !response.Succeeded {
		err = errors.New("the key exists")
	}
	return err
}

// Release implements [measure.Locker].
func (e *etcdKey) Release(ctx context.Context, key string) error {
	_, err := e.client.Delete(ctx, etcdKeyOf(key))
	return err
}

// Close implements [measure.Locker].
func (e *etcdKey) Close() {}
