package guard

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// resourceIndex indexes cached locks by the resources that they guard. Locks without guards, nearly
// all of them, are not in it.
const resourceIndex = "guards"

// AddIndex adds the index that [Admission] needs to the cache of locks.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.Lock{}, resourceIndex, guardedResources)
	if err != nil {
		return fmt.Errorf("index locks by what they guard: %w", err)
	}
	return nil
}

func guardedResources(object client.Object) []string {
	lock, ok := object.(*v1alpha1.Lock)
	if !ok || len(lock.Spec.Guards) == 0 {
		return nil
	}
	resources := make([]string, 0, len(lock.Spec.Guards))
	for _, guard := range lock.Spec.Guards {
		resources = append(resources, rules.GuardedResource(guard).String())
	}
	return resources
}

// guarding returns the cached locks of the namespace that guard objects of the resource, expired
// ones too: the cache may not show their renewal yet. The locks are those of the cache, and must not
// be changed.
func (a *Admission) guarding(ctx context.Context, namespace string, resource schema.GroupResource) ([]v1alpha1.Lock, error) {
	var locks v1alpha1.LockList
	err := a.Locks.List(ctx, &locks, client.InNamespace(namespace),
		client.MatchingFields{resourceIndex: resource.String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("look up the locks that guard %s: %w", resource, err)
	}
	return locks.Items, nil
}
