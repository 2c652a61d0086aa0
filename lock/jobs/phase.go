package jobs

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Phase says where a Job is on its way through its lock.
type Phase string

const (
	// Waiting Jobs have no pods and are started when they hold the lock.
	Waiting Phase = "Waiting"
	// Paused Jobs have no pods and were suspended by a user: they wait for nothing.
	Paused Phase = "Paused"
	// Running Jobs may have pods, now or later.
	Running Phase = "Running"
	// Stopping Jobs were started, or may have been, and then suspended or deleted: pods may
	// still run, and the Job controller may still be about to create some.
	Stopping Phase = "Stopping"
	// Finishing Jobs have succeeded or failed, and the Job controller is about to end
	// their pods and to say so.
	Finishing Phase = "Finishing"
	// Ended Jobs are complete or have failed: the Job controller creates no more pods. Their
	// status counts those that are left as far as it had seen them, which is not enough.
	Ended Phase = "Ended"
	// Discarded Jobs were deleted before they were started.
	Discarded Phase = "Discarded"
)

// MayHavePods reports whether pods of a Job in this phase may run. Of Ended ones some may
// be left; see [IsCleared].
func (p Phase) MayHavePods() bool { return p == Running || p == Stopping || p == Finishing }

// PhaseOf returns the phase of a Job with [v1alpha1.LockLabel].
func PhaseOf(job *batchv1.Job) Phase {
	switch {
	case IsFinished(job):
		return Ended
	case IsDecided(job):
		return Finishing
	case !job.DeletionTimestamp.IsZero():
		if isStarted(job) {
			return Stopping
		}
		return Discarded
	case !IsSuspended(job):
		return Running
	case isStarted(job):
		return Stopping
	case isPaused(job):
		return Paused
	}
	return Waiting
}

// IsDecided reports whether the Job has succeeded or failed.
func IsDecided(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget, batchv1.JobComplete, batchv1.JobFailed)
}

// IsFinished reports whether the Job controller is done with the Job. It has created no pod
// since, for one worker at a time syncs a Job, awaits every create before it writes the
// status, and leaves a Job alone that it has written as finished. That does not hold from
// the first of the conditions of [IsDecided] on: if the write of the last one fails, the
// Job is synced again, and pods that were counted may be counted no more and replaced,
// before the cache of the controller shows the first.
func IsFinished(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete, batchv1.JobFailed)
}

// OnlyPodSucceeded reports whether the status of a Job alone shows that it has no pod any
// more: it is complete, was to have one pod, and one has succeeded without another having
// been counted as failed. Of other Jobs that are finished, pods may be left that the
// Job controller has not yet seen, or sees no more since their owner was taken from them.
func OnlyPodSucceeded(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete) && job.Status.Succeeded == 1 && hasNoPodButOne(job)
}

// IsAboutToSucceed reports whether a Job that is not finished is about to be as
// [OnlyPodSucceeded] requires.
func IsAboutToSucceed(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobSuccessCriteriaMet) && !IsFinished(job) && hasNoPodButOne(job)
}

// hasNoPodButOne reports whether the Job was to have one pod only, and has none now.
func hasNoPodButOne(job *batchv1.Job) bool {
	return job.DeletionTimestamp.IsZero() && isOne(job.Spec.Completions) && isOne(job.Spec.Parallelism) &&
		job.Status.Failed == 0 && job.Status.Active == 0 && job.Status.Terminating != nil && *job.Status.Terminating == 0
}

func isOne(number *int32) bool { return number != nil && *number == 1 }

func hasCondition(job *batchv1.Job, kinds ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue && slices.Contains(kinds, condition.Type)
	})
}

// IsCleared reports whether the operator has found that an Ended Job has no pods any more,
// and recorded that by taking the finalizer off.
func IsCleared(job *batchv1.Job) bool { return !hasFinalizer(job) }

// isStarted reports whether the Job controller may have created pods since the Job was
// last known to have none. One that was started by a user, while the webhook was
// away, carries no token, and its start time does not last: the Job controller clears it
// when the Job is suspended. If the operator has suspended it, it has left its mark; and one
// that the operator has seen nothing of yet lacks the finalizer.
func isStarted(job *batchv1.Job) bool {
	_, hasToken := job.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation]
	_, hasMark := job.Annotations[v1alpha1.LockStoppingAnnotation]
	return hasToken || hasMark || !hasFinalizer(job) || job.Status.StartTime != nil || !IsSuspended(job)
}

// IsSuspended reports whether the Job is suspended, by whomever.
func IsSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isPaused(job *batchv1.Job) bool {
	return job.Annotations[v1alpha1.LockPausedAnnotation] == "true"
}

// IsLocked reports whether the Job runs under a lock.
func IsLocked(job *batchv1.Job) bool { return job.Labels[v1alpha1.LockLabel] == "true" }
