package jobs

import (
	"cmp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Turn decides the position of a waiting Job.
type Turn struct {
	// Priority is that of the Job's terms.
	Priority int32
	// WaitsSince is when the Job's wait began: when it was created, resumed or queued again.
	WaitsSince time.Time
	// UID is that of the Job.
	UID types.UID
}

// TurnOf returns the turn of a Job with these terms.
func TurnOf(job *batchv1.Job, terms Terms) Turn {
	return Turn{Priority: terms.Priority, WaitsSince: waitsSince(job), UID: job.UID}
}

// Compare orders waiting Jobs: the highest priority first, then the one that has waited for
// longest. So a Job that lost its lock, as by a forced release, queues behind those that wait
// already. The UID decides between equal times; every replica has the same order.
func (t Turn) Compare(other Turn) int {
	if order := cmp.Compare(other.Priority, t.Priority); order != 0 {
		return order
	}
	if order := t.WaitsSince.Compare(other.WaitsSince); order != 0 {
		return order
	}
	return strings.Compare(string(t.UID), string(other.UID))
}

// timeLayout has microseconds, like all times of locks.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// FormatTime formats a time for [v1alpha1.LockQueuedTimeAnnotation].
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

func waitsSince(job *batchv1.Job) time.Time {
	queued, err := time.Parse(time.RFC3339Nano, job.Annotations[v1alpha1.LockQueuedTimeAnnotation])
	if err != nil || queued.Before(job.CreationTimestamp.Time) {
		return job.CreationTimestamp.Time
	}
	return queued
}
