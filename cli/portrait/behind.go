package portrait

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
)

// What describe says of an object as long as it shows no end.
const (
	running = "Running"
	exists  = "exists"
)

// maxPods is how many Pods of a Job are looked at.
const maxPods = 10

// behind reads the object of the holder.
func (g *gathering) behind(ctx context.Context) error {
	if g.Lock == nil || g.Lock.Spec.HolderRef == nil {
		return nil
	}
	ref := g.Lock.Spec.HolderRef
	behind := &Behind{Kind: ref.Kind, Name: ref.Name}
	object := holderref.ObjectOf(ref)
	err := g.Cluster.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: ref.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		behind.Gone, behind.State = true, "gone"
	case err != nil:
		return err
	case object.GetUID() != ref.UID:
		behind.Gone, behind.State = true, "gone; another "+ref.Kind+" has its name now"
	default:
		behind.describe(object)
	}
	if job, ok := object.(*batchv1.Job); ok && !behind.Gone {
		behind.Pods = g.podsOf(ctx, job.UID)
		if behind.State == running && behind.IsWithoutPods() {
			behind.FailedCreate = g.failedCreate(ctx, job)
		}
	}
	if pod, ok := object.(*corev1.Pod); ok && !behind.Gone {
		behind.Pods = []Pod{g.pod(ctx, pod)}
	}
	g.Behind = behind
	return nil
}

// podsOf returns Pods of a Job.
func (g *gathering) podsOf(ctx context.Context, job types.UID) (seen []Pod) {
	var pods corev1.PodList
	err := g.Cluster.List(ctx, &pods, client.InNamespace(g.Namespace), client.Limit(maxPods), client.MatchingLabels{batchv1.ControllerUidLabel: string(job)})
	if err != nil {
		g.unknown("the Pods of the Job", err)
	}
	// At the same time, since each may be on a node that does not answer.
	seen = make([]Pod, len(pods.Items))
	var reading sync.WaitGroup
	for index := range pods.Items {
		reading.Go(func() { seen[index] = g.pod(ctx, &pods.Items[index]) })
	}
	reading.Wait()
	return seen
}

// failedCreate returns the last event of a Job that says why a Pod of it could not be created, or zero.
func (g *gathering) failedCreate(ctx context.Context, job *batchv1.Job) (last Fact) {
	events, err := g.eventsOf(ctx, "Job", job.Name)
	if err != nil {
		g.unknown("the events of the Job", err)
	}
	for index := range events {
		event := &events[index]
		if fact := factOf(event); event.InvolvedObject.UID == job.UID && event.Reason == "FailedCreate" && !fact.Time.Before(last.Time) {
			last = fact
		}
	}
	return last
}

// leaving looks for the Jobs of the lock whose Pods have not ended.
func (g *gathering) leaving(ctx context.Context) error {
	var holder types.UID
	if g.IsHeld(g.Now()) && g.Lock.Spec.HolderRef != nil {
		holder = g.Lock.Spec.HolderRef.UID
	}
	found, err := locks.LeavingJobs(ctx, g.Cluster, g.ID, holder)
	for _, job := range found {
		pods := slices.DeleteFunc(g.podsOf(ctx, job.UID), func(pod Pod) bool {
			return pod.Phase == string(corev1.PodSucceeded) || pod.Phase == string(corev1.PodFailed)
		})
		g.Leaving = append(g.Leaving, Leaving{job, pods})
	}
	return err
}

func (b *Behind) describe(object client.Object) {
	ended := holderref.HowEnded(object)
	b.IsAlive = ended == ""
	switch object := object.(type) {
	case *batchv1.Job:
		b.State = running
		if object.Spec.Suspend != nil && *object.Spec.Suspend {
			b.State = "Suspended"
		}
		if jobs.IsLocked(object) {
			b.Phase = jobs.PhaseOf(object)
		}
		b.HasNoPods = jobs.HasNoPods(object)
		b.Details = []string{fmt.Sprintf("pods: %d active, %d succeeded, %d failed", object.Status.Active, object.Status.Succeeded, object.Status.Failed)}
		if ptr.Deref(object.Spec.Parallelism, 1) == 0 {
			b.Details = append(b.Details, "spec.parallelism is 0")
		}
	case *corev1.Pod:
		b.State = string(object.Status.Phase)
	default:
		b.State = exists
	}
	if object.GetDeletionTimestamp() != nil {
		b.Details = append(b.Details, "is being deleted")
	}
	if ended != "" {
		b.State = ended
	}
}

func (g *gathering) pod(ctx context.Context, pod *corev1.Pod) Pod {
	seen := Pod{Name: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time}
	if pod.DeletionTimestamp != nil {
		seen.Deadline = pod.DeletionTimestamp.Time
		seen.Deleted = seen.Deadline.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	if pod.Status.StartTime != nil {
		seen.Started = pod.Status.StartTime.Time
	}
	for index := range pod.Status.ContainerStatuses {
		seen.Restarts += pod.Status.ContainerStatuses[index].RestartCount
	}
	g.askNode(ctx, &seen)
	if g.LastLog != nil {
		// A Pod that has not begun has no log, and one whose node is gone shows none.
		seen.LastLog, _ = g.LastLog(ctx, pod)
	}
	return seen
}
