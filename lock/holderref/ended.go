package holderref

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
)

// HowEnded returns how the object ended, as in "has failed: Evicted", or "" if it has not ended.
// Only Pods and Jobs end before they are deleted; pass them whole, not only their metadata.
func HowEnded(object client.Object) string {
	switch object := object.(type) {
	case *corev1.Pod:
		return howPodEnded(object)
	case *batchv1.Job:
		return howJobEnded(object)
	default:
		return ""
	}
}

func howPodEnded(pod *corev1.Pod) string {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return "has succeeded"
	case corev1.PodFailed:
		return withReason("has failed", pod.Status.Reason)
	default:
		return ""
	}
}

// howJobEnded relies on the Job controller to report the end of a Job after its pods have ended. A
// Job with pods left has not ended, even if another implementation or version reports it.
func howJobEnded(job *batchv1.Job) string {
	if !jobs.HasNoPods(job) {
		return ""
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			return "is complete"
		case batchv1.JobFailed:
			return withReason("has failed", condition.Reason)
		default:
		}
	}
	return ""
}

func withReason(how, reason string) string {
	if reason == "" {
		return how
	}
	return how + ": " + audit.Bounded(reason)
}
