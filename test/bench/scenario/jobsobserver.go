package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/test/bench/contender"
)

// unlimited returns a config without client-side rate limits.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// jobsObserver notes the times of Jobs and pods from one watch of each.
type jobsObserver struct {
	jobs cache.Store

	mu sync.Mutex
	// created is when the first pod of a Job was seen, ended when its last pod had ended,
	// completed when the Job was complete.
	created, ended, completed map[types.UID]time.Time
	// appeared and finished are called with new and complete Jobs; nil means none.
	appeared, finished func(*batchv1.Job)
}

// observeJobs observes until ctx ends.
func observeJobs(ctx context.Context, clientset kubernetes.Interface) (*jobsObserver, error) {
	o := &jobsObserver{created: map[types.UID]time.Time{}, ended: map[types.UID]time.Time{}, completed: map[types.UID]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(contender.Namespace))
	jobs, pods := factory.Batch().V1().Jobs().Informer(), factory.Core().V1().Pods().Informer()
	o.jobs = jobs.GetStore()
	_, err := jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.seeJob(object, true) },
		UpdateFunc: func(_, object any) { o.seeJob(object, false) },
	})
	if err != nil {
		return nil, err
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    o.seePod,
		UpdateFunc: func(_, object any) { o.seePod(object) },
	})
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), jobs.HasSynced, pods.HasSynced) {
		return nil, errors.New("the informers did not sync")
	}
	return o, nil
}

// subscribe sets the callbacks for new and complete Jobs.
func (o *jobsObserver) subscribe(appeared, finished func(*batchv1.Job)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.appeared, o.finished = appeared, finished
}

func (o *jobsObserver) seeJob(object any, isNew bool) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if isNew && o.appeared != nil {
		o.appeared(job.DeepCopy())
	}
	isComplete := slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue
	})
	if _, known := o.completed[job.UID]; isComplete && !known {
		o.completed[job.UID] = now
		if o.finished != nil {
			o.finished(job)
		}
	}
}

func (o *jobsObserver) seePod(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	uid := types.UID(pod.Labels[batchv1.ControllerUidLabel])
	if _, known := o.created[uid]; !known {
		o.created[uid] = now
	}
	if _, known := o.ended[uid]; !known && pod.Status.Phase == corev1.PodSucceeded {
		o.ended[uid] = now
	}
}

func (o *jobsObserver) awaitCompletions(ctx context.Context, count int) error {
	return o.await(ctx, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.completed) >= count
	})
}

func (o *jobsObserver) awaitEmpty(ctx context.Context) error {
	return o.await(ctx, func() bool { return len(o.jobs.ListKeys()) == 0 })
}

func (o *jobsObserver) await(ctx context.Context, isReached func() bool) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !isReached() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// measure computes the times between the Jobs of each key. Each Job follows the one that
// was created lockedKeys before it.
func (o *jobsObserver) measure(created []*batchv1.Job, result *jobsResult) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := lockedKeys; i < len(created); i++ {
		before, next := created[i-lockedKeys].UID, created[i].UID
		start, end, completion := o.created[next], o.ended[before], o.completed[before]
		if start.IsZero() || end.IsZero() || completion.IsZero() {
			return fmt.Errorf("the watches showed no times of %s", created[i].Name)
		}
		result.fromPod = append(result.fromPod, start.Sub(end))
		result.fromCompletion = append(result.fromCompletion, start.Sub(completion))
	}
	return nil
}
