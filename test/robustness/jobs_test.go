package robustness_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// jobKeyPrefix begins the keys of locks of Jobs. The model does not know them.
	jobKeyPrefix = "job-"
	jobKeys      = 2
	jobbers      = 3
	// maxQueued is how long a client waits for the start of its Job.
	maxQueued = 20 * time.Second
)

// jobRun is a Job from when a client saw that it was started until it began to end it.
type jobRun struct {
	name, key   string
	seen, ended time.Duration
	token       int64
	// done is when the end was answered.
	done time.Duration
}

func (j *jobRun) String() string {
	return fmt.Sprintf("%s of %s, token %d, seen to be started at %s, ended from %s on, had ended at %s", j.name, j.key, j.token, j.seen, j.ended, j.done)
}

// jobber creates Jobs under a lock, and plays the Job controller: it ends those that were
// started. They have no pods.
type jobber struct {
	*cluster

	number int
	random *rand.Rand
	made   int
}

// runJobbers starts the work of all jobbers.
func (c *cluster) runJobbers(ctx context.Context, seed uint64, workers *sync.WaitGroup) {
	for number := range jobbers {
		jobber := &jobber{cluster: c, number: number, random: rand.New(rand.NewPCG(seed, 800+uint64(number)))}
		workers.Go(func() {
			for pause(ctx, between(jobber.random, time.Millisecond, 300*time.Millisecond)) {
				jobber.session(ctx)
			}
		})
	}
}

func (j *jobber) session(working context.Context) {
	ctx := context.WithoutCancel(working)
	j.made++
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: clientNamespace, Name: fmt.Sprintf("jobber-%d-%d-%d", j.history.start.UnixNano(), j.number, j.made),
			Labels:      map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: fmt.Sprintf("%s%d", jobKeyPrefix, j.random.IntN(jobKeys))},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}},
		}}},
	}
	held := jobRun{name: job.Name, key: job.Annotations[v1alpha1.LockKeyAnnotation]}
	length := between(j.random, 100*time.Millisecond, 2*time.Second)
	if !insist(ctx, func(ctx context.Context) error {
		err := j.admin.Create(ctx, job)
		if apierrors.IsAlreadyExists(err) {
			return j.admin.Get(ctx, kubeclient.ObjectKeyFromObject(job), job)
		}
		return err
	}) {
		return
	}
	if j.awaitStart(working, job) {
		held.seen = j.history.now()
		held.token, _ = strconv.ParseInt(job.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation], 10, 64) // Zero is no token.
		pause(ctx, length)
		held.ended, held.done = j.history.now(), never
		if insist(ctx, func(ctx context.Context) error { return j.complete(ctx, job) }) {
			held.done = j.history.now()
		}
		j.history.addJob(held)
	}
	insist(ctx, func(ctx context.Context) error { return j.remove(ctx, job) })
}

// awaitStart returns whether the Job was started.
func (j *jobber) awaitStart(ctx context.Context, job *batchv1.Job) bool {
	ctx, cancel := context.WithTimeout(ctx, maxQueued)
	defer cancel()
	for pause(ctx, retry) {
		current := &batchv1.Job{}
		if err := j.admin.Get(ctx, kubeclient.ObjectKeyFromObject(job), current); err == nil && current.Spec.Suspend != nil && !*current.Spec.Suspend {
			*job = *current
			return true
		}
	}
	return false
}

// complete does what the Job controller does when the only pod of a Job has succeeded.
func (j *jobber) complete(ctx context.Context, job *batchv1.Job) error {
	if err := j.admin.Get(ctx, kubeclient.ObjectKeyFromObject(job), job); err != nil {
		return err
	}
	now := metav1.Now()
	if job.Status.StartTime == nil {
		job.Status.StartTime = &now
	}
	job.Status.CompletionTime, job.Status.Active, job.Status.Ready, job.Status.Succeeded = &now, 0, new(int32(0)), 1
	for _, reached := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: reached, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now,
		})
	}
	return j.admin.Status().Update(ctx, job)
}

func isForJob(made *grant) bool { return strings.Contains(made.key, jobKeyPrefix) }

// errRemains says that a deleted Job is not gone yet.
var errRemains = errors.New("the Job remains")

// remove deletes the Job, and answers as the Job controller does, which sets status.ready again
// of a Job that was started.
func (j *jobber) remove(ctx context.Context, job *batchv1.Job) error {
	if err := j.admin.Delete(ctx, job, kubeclient.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return kubeclient.IgnoreNotFound(err)
	}
	current := &batchv1.Job{}
	if err := j.admin.Get(ctx, kubeclient.ObjectKeyFromObject(job), current); err != nil {
		return kubeclient.IgnoreNotFound(err)
	}
	if current.Status.Ready == nil {
		current.Status.Ready = new(int32(0))
		if err := j.admin.Status().Update(ctx, current); err != nil {
			return err
		}
	}
	return errRemains
}

// checkJobs checks that no two Jobs of one key are started at a time, and that each has the token of a grant.
func (r *record) checkJobs() (violations []string) {
	byKey, grants := map[string][]*jobRun{}, r.byToken()
	for index := range r.jobs {
		held := &r.jobs[index]
		byKey[held.key] = append(byKey[held.key], held)
		grant := grants[held.token]
		if grant == nil || grant.key != "lock:"+held.key {
			violations = append(violations, "jobs: etcd has no such grant: "+held.String())
		}
	}
	for _, key := range sortedKeys(byKey) {
		held := byKey[key]
		slices.SortFunc(held, func(a, b *jobRun) int { return cmp.Compare(a.seen, b.seen) })
		for index, next := range held {
			for _, earlier := range held[:index] {
				if next.seen < earlier.ended {
					violations = append(violations, fmt.Sprintf("jobs: two are started at once:\n\t\t%s\n\t\t%s", earlier, next))
				}
				if next.token <= earlier.token {
					violations = append(violations, fmt.Sprintf("jobs: the tokens do not grow:\n\t\t%s\n\t\t%s", earlier, next))
				}
			}
		}
	}
	return violations
}
