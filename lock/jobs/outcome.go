package jobs

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is how a Job ends without having run.
type Outcome struct {
	// condition is the one that the Job controller makes the final condition of.
	condition batchv1.JobConditionType
	// Reason is that of the condition.
	Reason string
}

// The outcomes of Jobs that were not run.
var (
	// Skipped completes the Job: another holder has the lock, and its policy is skip.
	Skipped = Outcome{condition: batchv1.JobSuccessCriteriaMet, Reason: "LockSkipped"}
	// Refused fails the Job: another holder has the lock, and its policy is fail.
	Refused = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockHeld"}
	// TimedOut fails the Job: it has waited for as long as it was to.
	TimedOut = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockWaitTimeout"}
	// StartRefused fails the Job: it holds the lock, and the API server refuses to start it.
	StartRefused = Outcome{condition: batchv1.JobFailureTarget, Reason: "LockStartRefused"}
)

// Decide gives a Job that was not started the outcome, in its status. The Job
// controller completes or fails it then by its own rules.
func (o Outcome) Decide(job *batchv1.Job, message string, now metav1.Time) {
	EnsureStartTime(job)
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: o.condition, Status: corev1.ConditionTrue, Reason: o.Reason, Message: message,
		LastProbeTime: now, LastTransitionTime: now,
	})
}

// EnsureStartTime gives a Job that is to finish a start time, without which the API server
// takes no finished Job. It is no later than the end, which another machine's clock tells.
func EnsureStartTime(job *batchv1.Job) {
	if job.Status.StartTime == nil {
		job.Status.StartTime = job.CreationTimestamp.DeepCopy()
	}
}
