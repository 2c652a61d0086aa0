package controllers

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// HolderEnd says how the object that a lock was held for has ended.
type HolderEnd struct {
	// Ref names the object.
	Ref v1alpha1.HolderReference
	// How goes on from the name of the object, as in "was deleted".
	How string
}

// String is a part of a sentence, such as "Pod worker-0 (UID …) was deleted".
func (e HolderEnd) String() string {
	return fmt.Sprintf("%s %s (UID %s) %s", e.Ref.Kind, e.Ref.Name, e.Ref.UID, e.How)
}

const howDeleted = "was deleted"

// howPodEnded returns how the Pod has ended, or nothing if it has not.
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

// howJobEnded returns how the Job has ended, or nothing if it has not. The Job controller
// says that a Job is over when its pods have ended. One that says so earlier, in another
// implementation or version, is not over yet.
func howJobEnded(job *batchv1.Job) string {
	if job.Status.Active > 0 || job.Status.Terminating != nil && *job.Status.Terminating > 0 {
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

// maxReason bounds what is told of the reason that an object gives for its end.
const maxReason = 128

func withReason(how, reason string) string {
	if reason == "" {
		return how
	}
	return how + ": " + reason[:min(len(reason), maxReason)]
}
