package jobgate

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// BenchmarkPassOverWaitingJobs makes passes over a Job that runs and many that wait for it,
// of which none has changed, or one since the last pass.
func BenchmarkPassOverWaitingJobs(b *testing.B) {
	for _, number := range []int{1000, 10000} {
		for name, changed := range map[string]int{"unchanged": 0, "one changed": 1} {
			b.Run(fmt.Sprintf("%d %s", number, name), func(b *testing.B) {
				reconciler, indexer := longQueue(b, number)
				b.ReportAllocs()
				for b.Loop() {
					for i := range changed {
						requeue := waitingJob(reconciler.Clock.Now(), i)
						requeue.ResourceVersion = "2"
						if err := indexer.Update(requeue); err != nil {
							b.Fatal(err)
						}
					}
					if _, err := reconciler.Reconcile(b.Context(), ctrl.Request{NamespacedName: theLock}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// longQueue returns a reconciler with many Jobs that wait for one that runs.
func longQueue(b *testing.B, number int) (*Reconciler, toolscache.Indexer) {
	b.Helper()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{lockIndex: indexByLock})
	runs := waitingJob(now, number)
	running(runs)
	if err := indexer.Add(runs); err != nil {
		b.Fatal(err)
	}
	for i := range number {
		if err := indexer.Add(waitingJob(now, i)); err != nil {
			b.Fatal(err)
		}
	}
	reconciler := &Reconciler{
		Client: noLocks{}, Leadership: &fakeLeadership{isLeader: true}, Clock: clocktesting.NewFakeClock(now), Limits: rules.DefaultLimits(),
		jobsOf: func(lock client.ObjectKey) ([]*batchv1.Job, error) { return jobsOf(indexer, lock) }, states: map[client.ObjectKey]*lockState{},
	}
	state := reconciler.state(theLock)
	state.grant = &grant{job: runs.UID, lock: &v1alpha1.Lock{Spec: v1alpha1.LockSpec{
		RenewTime: new(v1alpha1.NewTimestamp(now)), ExpireTime: new(v1alpha1.NewTimestamp(now.Add(time.Hour))),
	}}}
	state.waiter = &waiter{job: waitingJob(now, 0).UID, done: make(chan struct{})}
	return reconciler, indexer
}

// waitingJob returns one of many Jobs that were created within a while and began to wait
// now, so that none is told anything.
func waitingJob(now time.Time, number int) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: fmt.Sprintf("job-%05d", number), UID: types.UID(fmt.Sprintf("%08d-0000-0000-0000-000000000000", number)),
			ResourceVersion: "1", CreationTimestamp: metav1.NewTime(now.Add(time.Duration(number/50-1000) * time.Second)),
			Labels: map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{
				v1alpha1.LockKeyAnnotation: "key", v1alpha1.LockQueuedTimeAnnotation: jobs.FormatTime(now),
			},
			Finalizers: []string{v1alpha1.LockFinalizer},
		},
		Spec: batchv1.JobSpec{Suspend: new(true)},
	}
}

// noLocks is a cache of Locks that does not show the grant yet.
type noLocks struct{ client.Client }

// Get implements [client.Reader].
func (noLocks) Get(_ context.Context, name client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("locks").GroupResource(), name.Name)
}
