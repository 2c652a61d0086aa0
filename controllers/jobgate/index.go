package jobgate

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lockIndex finds the Jobs that want a lock by namespace and name of the Lock.
const lockIndex = "forrst.dev/lock"

// indexJobs returns a function that finds the Jobs that want a lock in the cache. The Jobs
// are shared with the cache and must not be modified. A List of the cache would copy every
// Job, which would dominate the time of passes over long queues.
func indexJobs(locked cache.Informers) (func(lock client.ObjectKey) ([]*batchv1.Job, error), error) {
	informer, err := locked.GetInformer(context.Background(), &batchv1.Job{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if err := informer.AddIndexers(toolscache.Indexers{lockIndex: indexByLock}); err != nil {
		return nil, err
	}
	indexed, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer is a %T, which has no index", informer)
	}
	return func(lock client.ObjectKey) ([]*batchv1.Job, error) { return jobsOf(indexed.GetIndexer(), lock) }, nil
}

// jobsOf returns the Jobs that want a lock, in any order.
func jobsOf(indexer toolscache.Indexer, lock client.ObjectKey) ([]*batchv1.Job, error) {
	objects, err := indexer.ByIndex(lockIndex, lock.String())
	if err != nil {
		return nil, err
	}
	found := make([]*batchv1.Job, 0, len(objects))
	for _, object := range objects {
		if job, ok := object.(*batchv1.Job); ok {
			found = append(found, job)
		}
	}
	return found, nil
}

func indexByLock(object any) ([]string, error) {
	if job, ok := object.(*batchv1.Job); ok {
		if name := lockNameOf(job); name != "" {
			return []string{client.ObjectKey{Namespace: job.Namespace, Name: name}.String()}, nil
		}
	}
	return nil, nil
}
