package jobs

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Phase is the state of a Job with respect to its lock.
type Phase string

const (
	// Waiting Jobs have no pods and are started when they hold the lock.
	Waiting Phase = "Waiting"
	// Paused Jobs have no pods and were suspended by a user; they do not wait for the lock.
	Paused Phase = "Paused"
	// Running Jobs may have pods, now or later.
	Running Phase = "Running"
	// Stopping Jobs were started, or may have been, and then suspended or deleted: pods may still
	// run, and the Job controller may be about to create more.
	Stopping Phase = "Stopping"
	// Finishing Jobs have succeeded or failed, and the Job controller is about to end their pods
	// and set the final condition.
	Finishing Phase = "Finishing"
	// Ended Jobs are complete or have failed: the Job controller creates no more pods. Some may be
	// left: their status counts only the pods that the Job controller had seen.
	Ended Phase = "Ended"
	// Discarded Jobs were deleted before they were started.
	Discarded Phase = "Discarded"
)

// MayHavePods reports whether pods of a Job in this phase may run. Ended Jobs may have pods left
// too; see [IsCleared].
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

// HasNoPods reports whether the Job controller has counted no pod of a Job that runs or has yet to end. A Job that was
// started may get its pods later, or never, as under a quota: that it has not ended does not say that anything of it is alive.
func HasNoPods(job *batchv1.Job) bool {
	return job.Status.Active == 0 && (job.Status.Terminating == nil || *job.Status.Terminating == 0)
}

// IsDecided reports whether the Job has succeeded or failed.
func IsDecided(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget, batchv1.JobComplete, batchv1.JobFailed)
}

// IsFinished reports whether the Job controller has finished the Job and creates no more pods for
// it: one worker at a time syncs a Job, awaits every create before it writes the status, and
// ignores a Job that it has written as finished. The first conditions of [IsDecided] do not
// guarantee this: if the write of the last one fails, the Job is synced again, and the controller
// may replace counted pods before its cache shows the first condition.
func IsFinished(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete, batchv1.JobFailed)
}

// OnlyPodSucceeded reports whether the status of a Job alone shows that it has no pods: it is
// complete, was to have one pod, one has succeeded and none was counted as failed. Other finished
// Jobs may have pods that the Job controller has not seen yet, or no longer sees because their
// owner reference was removed.
func OnlyPodSucceeded(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete) && job.DeletionTimestamp.IsZero() &&
		isOne(job.Spec.Completions) && isOne(job.Spec.Parallelism) && job.Status.Succeeded == 1 && job.Status.Failed == 0 &&
		job.Status.Active == 0 && job.Status.Terminating != nil && *job.Status.Terminating == 0
}

func isOne(number *int32) bool { return number != nil && *number == 1 }

func hasCondition(job *batchv1.Job, kinds ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Status == corev1.ConditionTrue && slices.Contains(kinds, condition.Type)
	})
}

// IsCleared reports whether the operator has found that an Ended Job has no pods, which it records
// by removing the finalizer.
func IsCleared(job *batchv1.Job) bool { return !hasFinalizer(job) }

// MayHaveLivePods reports whether pods of a Job in this phase may not have ended yet, as far as the Job
// shows. No other Job of the same lock is started before they have.
func MayHaveLivePods(job *batchv1.Job, phase Phase) bool {
	return !OnlyPodSucceeded(job) && (phase.MayHavePods() || phase == Ended && !IsCleared(job))
}

// isStarted reports whether the Job controller may have created pods since the Job was last known
// to have none. A Job that a user started while the webhook was down carries no token, and loses
// its start time when it is suspended again. If the operator suspended it, the Job has the
// stopping annotation. A Job that the operator has not seen yet lacks the finalizer.
func isStarted(job *batchv1.Job) bool {
	_, hasToken := job.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation]
	_, hasMark := job.Annotations[v1alpha1.LockStoppingAnnotation]
	return hasToken || hasMark || !hasFinalizer(job) || job.Status.StartTime != nil || !IsSuspended(job)
}

// IsSuspended reports whether the Job is suspended, by a user or the operator.
func IsSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func isPaused(job *batchv1.Job) bool {
	return job.Annotations[v1alpha1.LockPausedAnnotation] == "true"
}

// IsLocked reports whether the Job runs under a lock.
func IsLocked(job *batchv1.Job) bool { return job.Labels[v1alpha1.LockLabel] == "true" }
