// Package portrait gathers what is known of one lock, and writes it on one screen.
package portrait

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
)

// Portrait is what is known of a lock at one time.
type Portrait struct {
	locks.ID
	// Lock is nil if there is none. An expired one is free.
	Lock *v1alpha1.Lock
	// Job is the one whose name was given in place of a key, as "nightly" or "job/nightly". With
	// "job/", the portrait is of its lock, and else of the key, which is free.
	Job *locks.LockedJob
	// HasProof says that release finds the owner token of this grant.
	HasProof bool
	// Me is the user's own identity; empty if it is not known.
	Me string
	// Behind is the object that the lock is held for; nil if it names none, or if it was
	// not asked for.
	Behind *Behind
	// Waiting are the Jobs that wait, the next one first.
	Waiting []locks.WaitingJob
	// Callers are those that wait through a façade, the next one first; nil if they are not known. AreMore says
	// that others wait, after these or between them.
	Callers []lock.Waiter
	AreMore bool
	// Leaving are the Jobs whose Pods keep the next Job of the lock from its start.
	Leaving []Leaving
	// HeldIn are other namespaces in which the key of a free lock is held, as far as the user may
	// read all locks.
	HeldIn []string
	// Nearby are keys like that of a free lock that are held in its namespace.
	Nearby []string
	// History has the latest facts last.
	History []Fact
	// May is what the user has the rights for.
	May Rights
	// Unknown says what could not be found out, and why.
	Unknown []string
}

// Behind is the object that stands behind a holder.
type Behind struct {
	Kind, Name string
	// Gone says that there is no such object any more, or that another one has its name.
	Gone bool
	// State says how the object is, such as "Running", and Details what else people ask for.
	State   string
	Details []string
	// Phase is that of a Job under the lock; empty of all else.
	Phase jobs.Phase
	// IsAlive says that the object has not ended, as far as it shows.
	IsAlive bool
	// Pods are those of a Job. HasNoPods says that its status counts none that has not ended, and FailedCreate
	// is then the last attempt of the Job controller to create one that has failed, or zero.
	Pods         []Pod
	HasNoPods    bool
	FailedCreate Fact
}

// Leaving is a Job that does not hold the lock, with its Pods that have not ended.
type Leaving struct {
	locks.LeavingJob
	Pods []Pod
}

// Pod is one that works for the holder.
type Pod struct {
	Name, Phase, Node string
	// Started is when the node has taken the Pod.
	Created, Started time.Time
	Restarts         int32
	// Deleted is when the Pod was deleted, and Deadline when its grace period ends. Zero if it was not.
	Deleted, Deadline time.Time
	// NodeTrouble says what is wrong with the node, such as "is not ready", and NodeTroubleSince since when;
	// zero if that is not known. Empty if nothing is known to be wrong.
	NodeTrouble      string
	NodeTroubleSince time.Time
	// LastLog is when the Pod last wrote a line; zero if that is not known.
	LastLog time.Time
}

// Fact is a part of the history.
type Fact struct {
	Time time.Time
	// What happened, to whom or by whom, in one line.
	What string
}

// Rights says what the user may do with locks of the namespace.
type Rights struct {
	// Known is false where rights were not asked for.
	Known  bool
	Create bool
	// Force says that the user may end the locks of others.
	Force bool
}

// IsHeld reports whether the lock has a holder.
func (p *Portrait) IsHeld(now time.Time) bool {
	return p.Lock != nil && p.Lock.Spec.ExpireTime != nil && p.Lock.Spec.ExpireTime.After(now)
}

// IsWithoutPods reports whether a Job has no Pod that has not ended.
func (b *Behind) IsWithoutPods() bool {
	return b.IsAlive && b.HasNoPods && !slices.ContainsFunc(b.Pods, func(pod Pod) bool {
		return pod.Phase != string(corev1.PodSucceeded) && pod.Phase != string(corev1.PodFailed)
	})
}

// withoutPods says that instead of whether the Job is alive.
func (b *Behind) withoutPods() string {
	says := "has no Pods"
	if len(b.Pods) > 0 {
		says = "all its Pods have ended"
	}
	if b.State == running {
		return "started, " + says
	}
	return says
}

// isUnstarted reports whether the holder is a Job that has the lock, and no Pods yet.
func (p *Portrait) isUnstarted() bool {
	return p.Behind != nil && !p.Behind.Gone && p.Behind.Phase == jobs.Waiting
}

// isOnNodesInTrouble reports whether no Pod of the holder is known to run: those that may run are all on nodes
// that are in trouble.
func (b *Behind) isOnNodesInTrouble() bool {
	isAny := false
	for _, pod := range b.Pods {
		switch {
		case pod.Phase == string(corev1.PodSucceeded), pod.Phase == string(corev1.PodFailed), pod.Node == "":
		case pod.NodeTrouble == "":
			return false
		default:
			isAny = true
		}
	}
	return b.IsAlive && isAny
}

// overdue returns the Pods that keep a Job from its start, and that should have ended, or do not end by themselves: a
// node that is dead does not end them.
func (p *Portrait) overdue(now time.Time) []Pod {
	var pods []Pod
	if p.Behind != nil {
		pods = append(pods, p.Behind.Pods...)
	}
	for _, job := range p.Leaving {
		pods = append(pods, job.Pods...)
	}
	return slices.DeleteFunc(pods, func(pod Pod) bool {
		isNodeDead := pod.NodeTrouble == nodeGone || pod.NodeTrouble == nodeSilent
		mayEnd := !pod.Deadline.Before(now) && !isNodeDead
		return pod.Deadline.IsZero() || mayEnd ||
			pod.Phase == string(corev1.PodSucceeded) || pod.Phase == string(corev1.PodFailed)
	})
}

// fromAudit returns the fact of a record. Renewals are none: there are too many. Nor are dry runs.
func fromAudit(record *audit.Record, namespace string) (Fact, bool) {
	if record.Event == audit.Renewed || record.DryRun {
		return Fact{}, false
	}
	what := string(record.Event)
	if record.Reason != "" {
		what += " (" + string(record.Reason) + ")"
	}
	if record.Admitted {
		what += ", admitted"
	}
	if record.Holder != "" {
		what += ", holder " + locks.Person(record.Holder, namespace)
	}
	if record.Actor != "" && record.Actor != record.Holder {
		what += ", by " + locks.Person(record.Actor, namespace)
	}
	if record.Message != "" {
		what += ": " + record.Message
	}
	return Fact{Time: record.Time.Time, What: what}, true
}
