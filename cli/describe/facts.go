// Package describe gathers what is known of one lock, and prints it on one screen. [Gatherer] reads, [Printer] writes;
// what a reader concludes from the facts are pure functions of them.
package describe

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
)

// Facts are what is known of a lock at one time.
type Facts struct {
	locks.ID
	// Lock is nil if there is none. An expired one is free.
	Lock *v1alpha1.Lock
	// Job is the Job whose name was given in place of a key, as "nightly" or "job/nightly". With
	// "job/", the facts are of its lock, and else of the key, which is free.
	Job *locks.Job
	// HasProof says that release finds the owner token of this grant.
	HasProof bool
	// Me is the user's own identity; empty if it is not known.
	Me string
	// Holder is nil if the lock names no object, or if that could not be read.
	Holder *Holder
	// Waiting are the Jobs that wait, the next one first.
	Waiting []locks.Job
	// Callers are the callers that wait through a façade, the next one first; nil if they are not known. AreMore says
	// that others wait, after these or between them.
	Callers []lock.Waiter
	AreMore bool
	// Stopping are the Jobs whose Pods keep the next Job of the lock from its start.
	Stopping []StoppingJob
	// HeldIn are other namespaces in which the key of a free lock is held, as far as the user may
	// read all locks.
	HeldIn []string
	// Nearby are similar keys that are held in the namespace of a free lock.
	Nearby []string
	// History has the latest entries last.
	History []Entry
	// Rights is what the user may do with the lock; nil if that is not known.
	Rights *Rights
	// Unknown says what could not be found out, and why.
	Unknown []string
}

// Holder is the object that a lock is held for.
type Holder struct {
	// Object is nil if it does not exist. IsReplaced says that another object has its name.
	Object     client.Object
	IsReplaced bool
	// Job is that object if it is a Job that runs under a lock; otherwise nil.
	Job *locks.Job
	// Pods are the Pods of a Job, or the Pod itself.
	Pods []Pod
	// FailedCreate is the last failure of the Job controller to create a Pod of a Job that has none; zero if there is none.
	FailedCreate Entry
}

// Pod is a Pod, with what is known of its node.
type Pod struct {
	*corev1.Pod
	// NodeProblem says what is wrong with the node, such as "is not ready"; empty if nothing is known to be wrong.
	NodeProblem string
	// NodeSince is since when; zero if that is not known.
	NodeSince time.Time
	// LastLog is when the Pod last wrote a line; zero if that is not known.
	LastLog time.Time
}

// StoppingJob is a Job that does not hold the lock, with its Pods that have not ended.
type StoppingJob struct {
	locks.Job
	Pods []Pod
}

// Entry is a part of the history.
type Entry struct {
	Time time.Time
	// What happened, to whom or by whom, in one line.
	What string
}

// Rights says what the user may do: take the lock, or end it when another user holds it.
type Rights struct{ Create, Force bool }

// IsHeld reports whether the lock has a holder.
func (f *Facts) IsHeld(now time.Time) bool { return locks.IsHeld(f.Lock, now) }

// HolderHasNoPods reports whether the holder is a Job that goes on without a Pod that has not ended.
func (f *Facts) HolderHasNoPods() bool { return f.Holder != nil && f.Holder.hasNoPods() }

// isUnstarted reports whether the holder is a Job that has the lock, and no Pods yet.
func (f *Facts) isUnstarted() bool { return f.holderIs(jobs.Waiting) }

// holderIs reports whether the holder is a Job under a lock in that phase.
func (f *Facts) holderIs(phase jobs.Phase) bool {
	return f.Holder != nil && f.Holder.Job != nil && f.Holder.Job.Phase == phase
}

// isAlive reports whether the object exists and has not ended, as far as it shows.
func (h *Holder) isAlive() bool { return h.Object != nil && holderref.HowEnded(h.Object) == "" }

func (h *Holder) hasNoPods() bool {
	job, isJob := h.Object.(*batchv1.Job)
	return isJob && h.isAlive() && jobs.HasNoPods(job) && !slices.ContainsFunc(h.Pods, Pod.isLive)
}

// isPending reports whether there are Pods, and none that may still work has begun.
func (h *Holder) isPending() bool {
	is := func(phases ...corev1.PodPhase) bool {
		return slices.ContainsFunc(h.Pods, func(pod Pod) bool { return slices.Contains(phases, pod.Status.Phase) })
	}
	return h.isAlive() && is(corev1.PodPending) && !is(corev1.PodRunning, corev1.PodUnknown)
}

// isOnlyOnBadNodes reports whether no Pod is known to run: those that may run are all on nodes with a problem.
func (h *Holder) isOnlyOnBadNodes() bool {
	placed := slices.DeleteFunc(slices.Clone(h.Pods), func(pod Pod) bool { return !pod.isLive() || pod.Spec.NodeName == "" })
	return h.isAlive() && len(placed) > 0 && !slices.ContainsFunc(placed, func(pod Pod) bool { return pod.NodeProblem == "" })
}

// isLive reports whether the Pod has not ended.
func (p Pod) isLive() bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// deleted is when the Pod was deleted; zero if it was not. Its deletionTimestamp is the end of the grace period.
func (p Pod) deleted() time.Time {
	if p.DeletionTimestamp == nil {
		return time.Time{}
	}
	return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// overdue returns the Pods that keep a Job from its start, and that should have ended, or do not end by themselves: a
// node that is dead does not end them.
func (f *Facts) overdue(now time.Time) []Pod {
	var pods []Pod
	if f.Holder != nil {
		pods = append(pods, f.Holder.Pods...)
	}
	for _, job := range f.Stopping {
		pods = append(pods, job.Pods...)
	}
	return slices.DeleteFunc(pods, func(pod Pod) bool {
		isNodeDead := pod.NodeProblem == nodeGone || pod.NodeProblem == nodeSilent
		return !pod.isLive() || pod.DeletionTimestamp == nil || !pod.DeletionTimestamp.Time.Before(now) && !isNodeDead
	})
}

// What is wrong with a node that cannot end its Pods.
const (
	nodeGone   = "does not exist"
	nodeSilent = "does not report"
)

// problemOf says why Pods of a node may not work; empty if it is ready.
func problemOf(node *corev1.Node) (problem string, since time.Time) {
	for _, condition := range node.Status.Conditions {
		switch since = condition.LastTransitionTime.Time; {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			return "", time.Time{}
		case condition.Status == corev1.ConditionFalse:
			return "is not ready", since
		default:
			return nodeSilent, since
		}
	}
	return "has not reported that it is ready", node.CreationTimestamp.Time
}
