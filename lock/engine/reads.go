package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// listChunk is how many locks one request lists at most.
const listChunk = 1000

// listTimeout bounds a list of all locks of a namespace that no caller waits for.
const listTimeout = 30 * time.Second

// List returns the held locks of a namespace from the API server, ordered by name. The error
// matches [lock.ErrUnavailable].
func (e *Engine) List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	var options metav1.ListOptions
	if filter.Owner != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.owner", filter.Owner).String()
	}
	var held []v1alpha1.Lock
	err := e.listEach(ctx, namespace, options, func(lock *v1alpha1.Lock) {
		if !rules.Expired(lock, e.clock.Now()) {
			held = append(held, *lock)
		}
	})
	if err != nil {
		return nil, e.requestError("list locks in namespace "+namespace, err, filter.Owner)
	}
	slices.SortFunc(held, func(a, b v1alpha1.Lock) int { return cmp.Compare(a.Name, b.Name) })
	return held, nil
}

// listAll passes on the locks of a namespace, as [Engine.listEach] does.
func (e *Engine) listAll(ctx context.Context, namespace string, each func(*v1alpha1.Lock)) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return e.listEach(ctx, namespace, metav1.ListOptions{}, each)
}

// listEach passes on the locks that options select, in chunks.
func (e *Engine) listEach(ctx context.Context, namespace string, options metav1.ListOptions, each func(*v1alpha1.Lock)) error {
	options.Limit = listChunk
	for {
		chunk, err := e.objects(namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for index := range chunk.Items {
			each(&chunk.Items[index])
		}
		if chunk.Continue == "" {
			return nil
		}
		options.Continue = chunk.Continue
	}
}

// Get returns the lock as stored in etcd. The answer may be out of date when it arrives; it does
// not protect a write.
//
// The error matches [lock.ErrNotHeld], from expireTime on also [lock.ErrExpired] if the lock has not
// been deleted yet, or [lock.ErrUnavailable].
func (e *Engine) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	current, err := get(ctx, e.objects(namespace), key.ObjectName())
	if err != nil {
		return nil, e.requestError(fmt.Sprintf("get %s in namespace %s", key, namespace), err)
	}
	switch {
	case current == nil:
		return nil, lock.ErrNotHeld
	case rules.Expired(current, e.clock.Now()):
		return nil, lock.ErrExpired
	}
	return current, nil
}
