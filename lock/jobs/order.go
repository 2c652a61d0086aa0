package jobs

import (
	"cmp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Compare orders Jobs as they are served: those of the highest priority first, and
// among them the first created. Creation times are whole seconds; the UID decides
// between equal ones, so that every replica has the same order.
func Compare(a, b *batchv1.Job, termsOfA, termsOfB Terms) int {
	return cmp.Or(
		-cmp.Compare(termsOfA.Priority, termsOfB.Priority),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		WaitsSince(a).Compare(WaitsSince(b)),
		strings.Compare(string(a.UID), string(b.UID)),
	)
}

// timeLayout has microseconds, as all times of locks.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// FormatTime returns what [v1alpha1.LockQueuedTimeAnnotation] says of a time.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// WaitsSince returns from when on the Job waits for its lock: its creation, or when it
// was resumed or queued again.
func WaitsSince(job *batchv1.Job) time.Time {
	queued, err := time.Parse(time.RFC3339Nano, job.Annotations[v1alpha1.LockQueuedTimeAnnotation])
	if err != nil || queued.Before(job.CreationTimestamp.Time) {
		return job.CreationTimestamp.Time
	}
	return queued
}
