package jobs_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// change is a change to a waiting Job.
type change func(*batchv1.Job)

// waiting returns a Job as the webhook leaves it.
func waiting(changes ...change) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job", Finalizers: []string{v1alpha1.LockFinalizer},
			Labels:      map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "key"},
		},
		Spec: batchv1.JobSpec{Suspend: new(true)},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}

func withToken(job *batchv1.Job) {
	job.Spec.Template.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: "7"}
}

func resumed(job *batchv1.Job) { job.Spec.Suspend = new(false) }

func paused(job *batchv1.Job) { job.Annotations[v1alpha1.LockPausedAnnotation] = "true" }

func deleted(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func condition(kind batchv1.JobConditionType, status corev1.ConditionStatus) change {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: status})
	}
}

func pods(active, terminating int32) change {
	return func(job *batchv1.Job) { job.Status.Active, job.Status.Terminating = active, &terminating }
}

func TestPhaseOf(t *testing.T) {
	cases := map[string]struct {
		job  *batchv1.Job
		want jobs.Phase
	}{
		"created":                    {waiting(), jobs.Waiting},
		"seen by the Job controller": {waiting(condition(batchv1.JobSuspended, corev1.ConditionTrue), pods(0, 0)), jobs.Waiting},
		"suspended by a user":        {waiting(paused), jobs.Paused},
		"started":                    {waiting(resumed, withToken), jobs.Running},
		"started by a user":          {waiting(resumed), jobs.Running},
		"suspended again":            {waiting(withToken), jobs.Stopping},
		"suspended by a user again":  {waiting(withToken, paused), jobs.Stopping},
		"started without the webhook, and suspended":                 {waiting(func(job *batchv1.Job) { job.Status.StartTime = new(metav1.Now()) }), jobs.Stopping},
		"started without the webhook, and suspended by the operator": {waiting(stoppingMark), jobs.Stopping},
		"created without the webhook, and suspended by a user":       {waiting(func(job *batchv1.Job) { job.Finalizers = nil }), jobs.Stopping},
		"deleted before its start":                                   {waiting(deleted), jobs.Discarded},
		"deleted after its start":                                    {waiting(deleted, resumed, withToken), jobs.Stopping},
		"deleted after its start, and suspended":                     {waiting(deleted, withToken), jobs.Stopping},
		"complete":                                                   {waiting(resumed, withToken, condition(batchv1.JobComplete, corev1.ConditionTrue), pods(0, 0)), jobs.Ended},
		"about to be complete":                                       {waiting(resumed, withToken, condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue), pods(0, 0)), jobs.Finishing},
		"failed with pods that end":                                  {waiting(resumed, withToken, condition(batchv1.JobFailureTarget, corev1.ConditionTrue), pods(0, 1)), jobs.Finishing},
		"succeeded with pods that run":                               {waiting(resumed, withToken, condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue), pods(1, 0)), jobs.Finishing},
		"complete, whatever its status counts":                       {waiting(resumed, withToken, condition(batchv1.JobComplete, corev1.ConditionTrue), pods(1, 1)), jobs.Ended},
		"complete and deleted":                                       {waiting(deleted, resumed, withToken, condition(batchv1.JobComplete, corev1.ConditionTrue), pods(0, 0)), jobs.Ended},
		"not failed":                                                 {waiting(resumed, withToken, condition(batchv1.JobFailed, corev1.ConditionFalse), pods(0, 0)), jobs.Running},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := jobs.PhaseOf(test.job); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := jobs.PhaseOf(jobs.Stripped(test.job)); got != test.want {
				t.Errorf("got %s of what caches keep, want %s", got, test.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	at := func(uid string, created int64, queued time.Duration) *batchv1.Job {
		job := waiting()
		job.UID, job.CreationTimestamp = types.UID(uid), metav1.Unix(created, 0)
		job.Annotations[v1alpha1.LockQueuedTimeAnnotation] = jobs.FormatTime(time.Unix(created, 0).Add(queued))
		return job
	}
	cases := map[string]struct {
		first, second               *batchv1.Job
		firstPriority, nextPriority int32
	}{
		"the higher priority":   {at("b", 9, 0), at("a", 1, 0), 1, 0},
		"the one created first": {at("b", 1, 0), at("a", 2, 0), 0, 0},
		"the one that waits already before one that has to queue again": {at("b", 2, 0), at("a", 1, time.Hour), 0, 0},
		"the one created first in a second":                             {at("b", 1, time.Millisecond), at("a", 1, 2*time.Millisecond), 0, 0},
		"the lesser UID, if nothing else says":                          {at("a", 1, 0), at("b", 1, 0), 0, 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			first, second := jobs.TurnOf(test.first, jobs.Terms{Priority: test.firstPriority}), jobs.TurnOf(test.second, jobs.Terms{Priority: test.nextPriority})
			if first.Compare(second) >= 0 || second.Compare(first) <= 0 {
				t.Error("the other one comes first")
			}
		})
	}
}

// TestOnlyPodSucceeded begins with a Job that meets the condition; each change breaks it.
func TestOnlyPodSucceeded(t *testing.T) {
	succeeded := func(job *batchv1.Job) {
		job.Spec.Completions, job.Spec.Parallelism = new(int32(1)), new(int32(1))
		job.Status.Succeeded = 1
	}
	certain := []change{withToken, resumed, succeeded, pods(0, 0), condition(batchv1.JobComplete, corev1.ConditionTrue)}
	if !jobs.OnlyPodSucceeded(waiting(certain...)) || !jobs.OnlyPodSucceeded(jobs.Stripped(waiting(certain...))) {
		t.Fatal("not so from the beginning")
	}
	for name, doubt := range map[string]change{
		"deleted":                     deleted,
		"parallel":                    func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(2)) },
		"a work queue":                func(job *batchv1.Job) { job.Spec.Completions = nil },
		"several pods in turn":        func(job *batchv1.Job) { job.Spec.Completions = new(int32(2)) },
		"a pod has failed":            func(job *batchv1.Job) { job.Status.Failed = 1 },
		"none has succeeded":          func(job *batchv1.Job) { job.Status.Succeeded = 0 },
		"one runs":                    pods(1, 0),
		"one is ending":               pods(0, 1),
		"it is unknown whether so":    func(job *batchv1.Job) { job.Status.Terminating = nil },
		"the Job has yet to be ended": func(job *batchv1.Job) { job.Status.Conditions[0].Type = batchv1.JobSuccessCriteriaMet },
		"the Job has failed":          func(job *batchv1.Job) { job.Status.Conditions[0].Type = batchv1.JobFailed },
	} {
		doubtful := waiting(append(certain, doubt)...)
		if jobs.OnlyPodSucceeded(doubtful) || jobs.OnlyPodSucceeded(jobs.Stripped(doubtful)) {
			t.Errorf("also if %s", name)
		}
	}
}
