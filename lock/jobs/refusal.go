package jobs

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Refusal is what a Job is told that was refused its lock, or its start, and leaves the lock to others for a while.
type Refusal struct {
	// At is when the Job was refused, and Until when it may be tried again, in its turn. Both are told to the second.
	At, Until time.Time
	// Why says what was refused, with the message of the refusal.
	Why string
}

// The parts of the text of a Refusal.
const (
	refusedAt  = "refused at "
	triedAfter = ", tried again after "
)

// String returns the text of [v1alpha1.LockWaitingAnnotation] that [RefusalOf] reads.
func (r Refusal) String() string {
	return fmt.Sprint(refusedAt, r.At.UTC().Format(time.RFC3339), triedAfter, r.Until.UTC().Format(time.RFC3339), ": ", r.Why)
}

// RefusalOf returns the refusal that a Job was told last, or nil if it was told of none, or of its place in the queue since.
func RefusalOf(job *batchv1.Job) *Refusal {
	when, why, _ := strings.Cut(job.Annotations[v1alpha1.LockWaitingAnnotation], ": ")
	refused, tried, _ := strings.Cut(when, triedAfter)
	at, notAt := time.Parse(refusedAt+time.RFC3339, refused)
	until, notUntil := time.Parse(time.RFC3339, tried)
	if notAt != nil || notUntil != nil {
		return nil
	}
	return &Refusal{At: at, Until: until, Why: why}
}
