package scenario

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
)

// storers is how many puts are under way at once.
const storers = 64

// storedLocks writes locks straight into etcd, as the API server stores those of the façade. Through the façade, a
// million of them would take an hour.
type storedLocks struct {
	etcd *clientv3.Client
	// template is a lock that the façade made.
	template []byte
}

func lockPath(name string) string {
	return "/registry/forrst.dev/locks/" + contender.Namespace + "/" + name
}

func objectName(key string) string {
	return v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key).ObjectName()
}

// newStoredLocks takes a lock with the ttl through the façade, and releases it when it has read how it is stored.
func newStoredLocks(ctx context.Context, l *lab.Lab, ttl time.Duration) (*storedLocks, error) {
	const key = "template"
	connection, err := contender.DialFacade(ctx, l.Cluster.Facade)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	body := contender.AcquireBody(key, contender.OwnerOf(0), ttl, 0)
	if err := connection.Call(ctx, connection.Request(body), []byte(`"acquired":true`)); err != nil {
		return nil, err
	}
	stored, err := l.Etcd.Get(ctx, lockPath(objectName(key)))
	if err != nil {
		return nil, err
	}
	if len(stored.Kvs) != 1 {
		return nil, errors.New("etcd lacks the lock that was acquired")
	}
	s := &storedLocks{etcd: l.Etcd, template: stored.Kvs[0].Value}
	return s, connection.Call(ctx, connection.Request(contender.ReleaseBody(key, contender.OwnerOf(0))), []byte(`"released":true`))
}

// write stores the locks with the numbers from first up to, but not including, end. Lock number n has the key that
// prefix-n makes, the n-th owner, and ends at expireTime(n).
func (s *storedLocks) write(ctx context.Context, prefix string, first, end int, expireTime func(number int) time.Time) error {
	return s.each(ctx, first, end, func(ctx context.Context, number int) error {
		key := fmt.Sprintf("%s-%d", prefix, number)
		content, err := s.lock(key, contender.OwnerOf(number), expireTime(number))
		if err == nil {
			_, err = s.etcd.Put(ctx, lockPath(objectName(key)), string(content))
		}
		return err
	})
}

// remove deletes the first locks of the prefix.
func (s *storedLocks) remove(ctx context.Context, prefix string, count int) error {
	return s.each(ctx, 0, count, func(ctx context.Context, number int) error {
		_, err := s.etcd.Delete(ctx, lockPath(objectName(fmt.Sprintf("%s-%d", prefix, number))))
		return err
	})
}

// each calls do with the numbers from first up to, but not including, end. A transaction of many locks would be quicker,
// but gives all of them one resourceVersion, of which the API server's watches lose some.
func (s *storedLocks) each(ctx context.Context, first, end int, do func(ctx context.Context, number int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for storer := range storers {
		all.Go(func() {
			for number := first + storer; number < end; number += storers {
				if err := do(ctx, number); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// lock returns the template as the lock of another key.
func (s *storedLocks) lock(key, owner string, expireTime time.Time) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(s.template, &object); err != nil {
		return nil, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	if metadata == nil || spec == nil || spec["expireTime"] == nil {
		return nil, fmt.Errorf("etcd has a lock of another form: %s", s.template)
	}
	metadata["name"], metadata["uid"] = objectName(key), newUID()
	spec["key"], spec["owner"] = key, owner
	spec["expireTime"] = expireTime.UTC().Format(metav1.RFC3339Micro)
	return json.Marshal(object)
}

func newUID() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", random[0:4], random[4:6], random[6:8], random[8:10], random[10:])
}
