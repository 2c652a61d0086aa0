package jobs

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is the end of a Job that was not run.
type Outcome struct {
	// condition tells the Job controller which final condition to set.
	condition batchv1.JobConditionType
	// Reason is the reason of the condition.
	Reason string
}

// The outcomes of Jobs that were not run.
var (
	// Skipped completes the Job: another holder has the lock, and the Job's policy is skip.
	Skipped = Outcome{condition: batchv1.JobSuccessCriteriaMet, Reason: "LockSkipped"}
	// Refused fails the Job: another holder has the lock, and the Job's policy is fail.
	Refused = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockHeld"}
	// TimedOut fails the Job: its wait timeout has passed.
	TimedOut = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockWaitTimeout"}
	// AcquireRefused fails the Job: the cluster refuses it the lock, and the Job does not wait.
	AcquireRefused = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockRefused"}
	// StartRefused fails the Job: the Job holds the lock, but the API server refuses to start it.
	StartRefused = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockStartRefused"}
)

// Decide sets the outcome of a Job that was not started, in its status. The Job controller then
// completes or fails it by its own rules.
func (o Outcome) Decide(job *batchv1.Job, message string, now metav1.Time) {
	EnsureStartTime(job)
	RemoveSuspendedCondition(job)
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: o.condition, Status: corev1.ConditionTrue, Reason: o.Reason, Message: message,
		LastProbeTime: now, LastTransitionTime: now,
	})
}

// NotRun returns why a Job was not run, as its conditions tell; empty for any other Job.
func NotRun(job *batchv1.Job) string {
	for _, condition := range job.Status.Conditions {
		for _, outcome := range []Outcome{Skipped, Refused, TimedOut, AcquireRefused, StartRefused} {
			if condition.Status == corev1.ConditionTrue && condition.Reason == outcome.Reason {
				return condition.Message
			}
		}
	}
	return ""
}

// EnsureStartTime gives a Job that is to finish a start time, since the API server refuses
// finished Jobs without one. The creation time is no later than the end, which another machine's
// clock stamps.
func EnsureStartTime(job *batchv1.Job) {
	if job.Status.StartTime == nil {
		job.Status.StartTime = job.CreationTimestamp.DeepCopy()
	}
}

// RemoveSuspendedCondition removes the condition Suspended of a Job that is about to start or to
// finish, and reports whether there was one. The Job controller sets it to False when it finds it
// on a started Job, and adds none otherwise. Argo CD takes a Job with that condition in any status
// but True for complete, and a complete Job that still has it for one that waits.
func RemoveSuspendedCondition(job *batchv1.Job) (isRemoved bool) {
	before := len(job.Status.Conditions)
	job.Status.Conditions = slices.DeleteFunc(job.Status.Conditions, isSuspended)
	return len(job.Status.Conditions) < before
}

// HasSuspendedCondition reports whether the Job has the condition Suspended, in any status.
func HasSuspendedCondition(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, isSuspended)
}

func isSuspended(condition batchv1.JobCondition) bool { return condition.Type == batchv1.JobSuspended }
