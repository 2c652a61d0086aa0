package jobs

import (
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// strippedAnnotation is on a stripped Job and its pod template. It is not the name of an annotation, so
// the API server refuses to store such a Job as a whole. And it is in either version that a merge patch
// is made from, so no map of annotations is ever empty, which the patch would tell the API server to
// remove with all that is not in the cache.
const strippedAnnotation = "forrst.dev/stripped: patch the job instead of writing it"

// Stripped returns a copy of a Job under a lock as caches keep it: what this package reads, and what a
// merge patch replaces as a whole, such as the finalizers. Of the pod template only the fencing token
// is left. A merge patch between two versions of it, with a resourceVersion, changes a whole Job in the
// same way.
func Stripped(job *batchv1.Job) *batchv1.Job {
	stripped := &batchv1.Job{
		TypeMeta: job.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
			CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
			Finalizers:  job.Finalizers,
			Annotations: map[string]string{strippedAnnotation: ""},
		},
		Spec: batchv1.JobSpec{
			Suspend: job.Spec.Suspend, Completions: job.Spec.Completions, Parallelism: job.Spec.Parallelism,
		},
		Status: batchv1.JobStatus{
			Conditions: job.Status.Conditions, StartTime: job.Status.StartTime, Active: job.Status.Active, Ready: job.Status.Ready,
			Succeeded: job.Status.Succeeded, Failed: job.Status.Failed, Terminating: job.Status.Terminating,
		},
	}
	if label, ok := job.Labels[v1alpha1.LockLabel]; ok {
		stripped.Labels = map[string]string{v1alpha1.LockLabel: label}
	}
	for name, value := range job.Annotations {
		if slices.Contains(userAnnotations, name) || slices.Contains(operatorAnnotations, name) {
			stripped.Annotations[name] = value
		}
	}
	stripped.Spec.Template.Annotations = map[string]string{strippedAnnotation: ""}
	if token, ok := job.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation]; ok {
		stripped.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation] = token
	}
	return stripped
}

// maxKeptBytes bounds the JSON of a [Stripped] Job when users write it. What the operator and the Job
// controller add to it is bounded by them.
const maxKeptBytes = 8 << 10

// checkKept refuses a Job of which the operator would have to keep much in memory.
func checkKept(job *batchv1.Job) field.ErrorList {
	text, err := json.Marshal(Stripped(job))
	if err == nil && len(text) <= maxKeptBytes {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), field.OmitValueType{},
		fmt.Sprintf("finalizers and the annotations %s… take %d bytes as JSON; at most %d are allowed for a Job under a lock", annotationPrefix, len(text), maxKeptBytes))}
}
