package engine

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// listChunk is how many locks one request lists at most.
const listChunk = 1000

// List returns the held locks of a namespace from the API server, ordered by name. The error
// matches [lock.ErrUnavailable].
func (e *Engine) List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	options := metav1.ListOptions{Limit: listChunk}
	if filter.Owner != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.owner", filter.Owner).String()
	}
	var held []v1alpha1.Lock
	for {
		chunk, err := e.objects(namespace).List(ctx, options)
		if err != nil {
			return nil, e.requestError("list locks in namespace "+namespace, err)
		}
		for index := range chunk.Items {
			if lock := &chunk.Items[index]; !rules.Expired(lock, e.clock.Now()) {
				held = append(held, *lock)
			}
		}
		if chunk.Continue == "" {
			break
		}
		options.Continue = chunk.Continue
	}
	slices.SortFunc(held, func(a, b v1alpha1.Lock) int { return cmp.Compare(a.Name, b.Name) })
	return held, nil
}
