package scenario

import (
	"context"
	"fmt"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
)

// bareWorkers is how many Jobs the bare controller starts at once, as many as the operator.
const bareWorkers = 32

// bareController starts the Jobs of each key in the order in which it saw them.
type bareController struct {
	clientset kubernetes.Interface
	// fail ends the measurement.
	fail  context.CancelCauseFunc
	queue workqueue.TypedInterface[*batchv1.Job]

	mu sync.Mutex
	// waiting has the Jobs of each key that were not started. A key with an entry has a
	// running Job.
	waiting map[string][]*batchv1.Job
}

// startBareController starts it as an administrator: a policy lets the operator change no Job that is not under a lock.
func startBareController(ctx context.Context, l *lab.Lab, observed *jobsObserver, fail context.CancelCauseFunc) error {
	clientset, err := kubernetes.NewForConfig(unlimited(l.Admin))
	if err != nil {
		return err
	}
	c := &bareController{clientset: clientset, fail: fail, queue: workqueue.NewTyped[*batchv1.Job](), waiting: map[string][]*batchv1.Job{}}
	context.AfterFunc(ctx, c.queue.ShutDown)
	for range bareWorkers {
		go c.work(ctx)
	}
	observed.subscribe(c.appeared, c.completed)
	return nil
}

func (c *bareController) appeared(job *batchv1.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := job.Annotations[bareKey]
	waiting, isRunning := c.waiting[key]
	if !isRunning {
		c.waiting[key] = nil
		c.queue.Add(job)
		return
	}
	c.waiting[key] = append(waiting, job)
}

func (c *bareController) completed(job *batchv1.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := job.Annotations[bareKey]
	waiting := c.waiting[key]
	if len(waiting) == 0 {
		delete(c.waiting, key)
		return
	}
	c.waiting[key] = waiting[1:]
	c.queue.Add(waiting[0])
}

func (c *bareController) work(ctx context.Context) {
	for {
		job, isOver := c.queue.Get()
		if isOver {
			return
		}
		for ctx.Err() == nil && !c.unsuspend(ctx, job) {
			continue
		}
		c.queue.Done(job)
	}
}

// unsuspend starts the Job and reports whether it did. It did not if the Job controller has written the Job
// meanwhile; any other error ends the measurement.
func (c *bareController) unsuspend(ctx context.Context, job *batchv1.Job) bool {
	jobs := c.clientset.BatchV1().Jobs(contender.Namespace)
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"suspend":false}}`, job.ResourceVersion)
	_, err := jobs.Patch(ctx, job.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err == nil {
		return true
	}
	if apierrors.IsConflict(err) {
		var current *batchv1.Job
		if current, err = jobs.Get(ctx, job.Name, metav1.GetOptions{}); err == nil {
			*job = *current
			return false
		}
	}
	c.fail(fmt.Errorf("start Job %s: %w", job.Name, err))
	return false
}
