package jobs

import (
	"cmp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Turn is what decides when a Job is served.
type Turn struct {
	// Priority is that of the Job's terms.
	Priority int32
	// Created is when the Job was created, in whole seconds, and WaitsSince from when on it
	// waits for its lock: its creation, or when it was resumed or queued again.
	Created, WaitsSince time.Time
	// UID is that of the Job.
	UID types.UID
}

// TurnOf returns the turn of a Job with these terms.
func TurnOf(job *batchv1.Job, terms Terms) Turn {
	return Turn{Priority: terms.Priority, Created: job.CreationTimestamp.Time, WaitsSince: waitsSince(job), UID: job.UID}
}

// Compare orders Jobs as they are served: those of the highest priority first, and
// among them the first created. The UID decides between equal times, so that every replica
// has the same order.
func (t Turn) Compare(other Turn) int {
	if order := cmp.Compare(other.Priority, t.Priority); order != 0 {
		return order
	}
	if order := t.Created.Compare(other.Created); order != 0 {
		return order
	}
	if order := t.WaitsSince.Compare(other.WaitsSince); order != 0 {
		return order
	}
	return strings.Compare(string(t.UID), string(other.UID))
}

// timeLayout has microseconds, as all times of locks.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// FormatTime returns what [v1alpha1.LockQueuedTimeAnnotation] says of a time.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

func waitsSince(job *batchv1.Job) time.Time {
	queued, err := time.Parse(time.RFC3339Nano, job.Annotations[v1alpha1.LockQueuedTimeAnnotation])
	if err != nil || queued.Before(job.CreationTimestamp.Time) {
		return job.CreationTimestamp.Time
	}
	return queued
}
