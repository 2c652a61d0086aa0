package jobgate

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
)

// cachedJobs is the cache of Jobs.
type cachedJobs struct{ *world }

// Get implements [client.Reader].
func (c cachedJobs) Get(ctx context.Context, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.cluster.Get(ctx, name, object, options...); err != nil {
		return err
	}
	if job, ok := object.(*batchv1.Job); ok {
		jobs.Stripped(job).DeepCopyInto(job)
	}
	return nil
}

// List implements [client.Reader]. All Jobs with the label want the same lock here.
func (c cachedJobs) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if c.shown != nil {
		c.shown.DeepCopyInto(list.(*batchv1.JobList))
		return nil
	}
	if err := c.cluster.List(ctx, list, client.MatchingLabels{v1alpha1.LockLabel: "true"}); err != nil {
		return err
	}
	if shown, ok := list.(*batchv1.JobList); ok {
		for i := range shown.Items {
			shown.Items[i] = *jobs.Stripped(&shown.Items[i])
		}
	}
	return nil
}

// of shows the Jobs that want the lock, which are all.
func (c cachedJobs) of(client.ObjectKey) ([]*batchv1.Job, error) {
	var list batchv1.JobList
	err := c.List(c.t.Context(), &list)
	shown := make([]*batchv1.Job, 0, len(list.Items))
	for i := range list.Items {
		shown = append(shown, &list.Items[i])
	}
	return shown, err
}

// faultyEngine is an engine that fails where it is told to.
type faultyEngine struct {
	lock.Backend

	renewing, getting error
	// acquire takes the place of the backend's, if set.
	acquire func(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error)
}

func (e *faultyEngine) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	if e.renewing != nil {
		return nil, e.renewing
	}
	return e.Backend.Renew(ctx, namespace, key, proof, ttl)
}

func (e *faultyEngine) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	if e.getting != nil {
		return nil, e.getting
	}
	return e.Backend.Get(ctx, namespace, key)
}

func (e *faultyEngine) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if e.acquire != nil {
		return e.acquire(ctx, namespace, request)
	}
	return e.Backend.Acquire(ctx, namespace, request)
}

type fakeLeadership struct {
	mu       sync.Mutex
	isLeader bool
}

func (l *fakeLeadership) IsLeader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLeader
}

func (l *fakeLeadership) Gained() <-chan struct{} { return nil }

func (l *fakeLeadership) loseGrant() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLeader = false
}
