package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
	"forrst.dev/lock-operator/test/support/kubelet"
)

const (
	lockedJobs = 500
	lockedKeys = 50
	// jobRunsFor leaves a small machine with two cores some idle time. Without a run time,
	// the Job controller and the API server would be the bottleneck of fifty Jobs.
	jobRunsFor = "2s"
	// jobsTime bounds the wait for the Jobs of one contender.
	jobsTime = 5 * time.Minute
)

// jobsArm is one way of running Jobs one after the other.
type jobsArm struct {
	name string
	// prefix begins the names of its Jobs.
	prefix string
	// prepare makes a Job wait for its turn.
	prepare func(job *batchv1.Job, key string)
	// start starts the component that starts the Jobs in turn.
	start func(ctx context.Context, l *lab.Lab, observed *jobsObserver, fail context.CancelCauseFunc) error
}

// jobsInTurn compares locked Jobs with Jobs of a bare controller, which unsuspends the next
// Job of a key when it sees that the previous Job is complete.
func jobsInTurn(ctx context.Context, l *lab.Lab, r *report.Report) error {
	clientset, err := kubernetes.NewForConfig(unlimited(l.Admin))
	if err != nil {
		return err
	}
	node, err := kubelet.Start(ctx, clientset)
	if err != nil {
		return err
	}
	defer node.Stop()
	scenario := fmt.Sprintf("%d Jobs on %d keys", lockedJobs, lockedKeys)
	arms := []jobsArm{
		{"bare controller", "bare", prepareSuspended, startBareController},
		{"locked Jobs", "locked", prepareLocked, func(context.Context, *lab.Lab, *jobsObserver, context.CancelCauseFunc) error { return nil }},
	}
	var measured []*jobsResult
	for _, arm := range arms {
		result, err := runJobs(ctx, l, clientset, node, arm)
		if err != nil {
			return fmt.Errorf("%s: %w", arm.name, err)
		}
		measured = append(measured, result)
	}
	bare, locked := measured[0], measured[1]
	r.Note(scenario, "bare controller", bare.figures()...)
	r.Note(scenario, "locked Jobs", append(locked.figures(),
		report.AtMost("last pod's end to next start / bare", locked.spread(locked.fromPod, measure.Median(bare.fromPod)), 1.5, ""),
		report.AtMost("completion to next start / bare", locked.spread(locked.fromCompletion, measure.Median(bare.fromCompletion)), 1.5, ""))...)
	return nil
}

// jobsResult is the measurement of one contender's Jobs.
type jobsResult struct {
	// fromPod are the times from the end of a Job's last pod to the creation of the next
	// Job's first pod. fromCompletion are those from the Job's completion, negative if the
	// next pod came first.
	fromPod, fromCompletion []time.Duration
	took                    time.Duration
	// window says what else happened meanwhile.
	window measure.Window
}

// spread returns the spread of the times in a unit.
func (r *jobsResult) spread(times []time.Duration, unit time.Duration) measure.Spread {
	values := make([]float64, 0, len(times))
	for _, each := range times {
		values = append(values, float64(each)/float64(unit))
	}
	return measure.Samples(values, r.window)
}

func (r *jobsResult) figures() []report.Figure {
	return []report.Figure{
		report.Noted("last pod's end to next start", r.spread(r.fromPod, time.Millisecond), " ms"),
		report.Noted("completion to next start", r.spread(r.fromCompletion, time.Millisecond), " ms"),
		report.Noted("all Jobs", measure.Single(r.took.Seconds(), r.window), " s"),
	}
}

// runJobs creates all Jobs and waits for the end of the last one.
func runJobs(ctx context.Context, l *lab.Lab, clientset kubernetes.Interface, node *kubelet.Kubelet, arm jobsArm) (*jobsResult, error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTime)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	observed, err := observeJobs(ctx, clientset)
	if err != nil {
		return nil, err
	}
	if err := arm.start(ctx, l, observed, fail); err != nil {
		return nil, err
	}
	end, err := l.Machine.Watch()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	created := make([]*batchv1.Job, lockedJobs)
	for i := range created {
		key := fmt.Sprintf("key-%02d", i%lockedKeys)
		job := benchJob(fmt.Sprintf("%s-%03d", arm.prefix, i), key)
		arm.prepare(job, key)
		if created[i], err = clientset.BatchV1().Jobs(contender.Namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	if err := observed.awaitCompletions(ctx, lockedJobs); err != nil {
		return nil, err
	}
	result := &jobsResult{took: time.Since(started)}
	if result.window, err = end(); err != nil {
		return nil, err
	}
	if err := errors.Join(checkJobs(node, created), observed.measure(created, result)); err != nil {
		return nil, err
	}
	return result, deleteJobs(ctx, clientset, observed)
}

// deleteJobs makes room for the next contender.
func deleteJobs(ctx context.Context, clientset kubernetes.Interface, observed *jobsObserver) error {
	err := clientset.BatchV1().Jobs(contender.Namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return observed.awaitEmpty(ctx)
}

// checkJobs fails unless every Job ran exactly once, and those of a key in the order of
// their creation, never two at a time.
func checkJobs(node *kubelet.Kubelet, created []*batchv1.Job) error {
	if violations := node.Violations(); len(violations) > 0 {
		return errors.New(violations[0])
	}
	position := map[string]int{}
	for i, job := range created {
		position[string(job.UID)] = i
	}
	last, count := map[string]int{}, 0
	for _, started := range node.Starts() {
		place, ok := position[string(started.UID)]
		if !ok {
			continue
		}
		if before, ok := last[started.Key]; ok && place <= before {
			return fmt.Errorf("%s was started out of turn, or twice", started.Job)
		}
		last[started.Key] = place
		count++
	}
	if count != len(created) {
		return fmt.Errorf("%d pods were started for %d Jobs", count, len(created))
	}
	return nil
}

func benchJob(name, key string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubelet.Key: key, kubelet.RunFor: jobRunsFor}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "work", Image: "work"}},
				},
			},
		},
	}
}

func prepareLocked(job *batchv1.Job, key string) {
	job.Labels[v1alpha1.LockLabel] = "true"
	job.Annotations[v1alpha1.LockKeyAnnotation] = key
}

// bareKey is the annotation with the key of a Job for the bare controller.
const bareKey = "bench/key"

func prepareSuspended(job *batchv1.Job, key string) {
	job.Annotations[bareKey] = key
	job.Spec.Suspend = new(true)
}
