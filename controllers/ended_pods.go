package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// podPhases selects the Pods that are over, or those that are not. Whatever the number
// of the latter, the API server does not tell of them who selects the former.
var (
	endedPods = fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodPending)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodUnknown)),
	)
	livePods = fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
)

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// jobUIDLabel is what Kubernetes puts on the pods of a Job.
const jobUIDLabel = "batch.kubernetes.io/controller-uid"

// newEndedPods returns a cache of the Pods that have succeeded or failed, with nothing but
// their names, their UIDs and those of their Jobs. It is one of its own: the manager's answers for all Pods.
func newEndedPods(manager ctrl.Manager) (cache.Cache, error) {
	return cache.New(manager.GetConfig(), cache.Options{
		HTTPClient: manager.GetHTTPClient(),
		Scheme:     manager.GetScheme(),
		Mapper:     manager.GetRESTMapper(),
		ByObject:   map[client.Object]cache.ByObject{podMetadata(): {Field: endedPods, Transform: onlyIdentity}},
	})
}

func onlyIdentity(object any) (any, error) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil // the tombstone of one that was transformed
	}
	kept := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
	if job, ok := pod.Labels[jobUIDLabel]; ok {
		kept.Labels = map[string]string{jobUIDLabel: job}
	}
	pod.ObjectMeta = kept
	return pod, nil
}

// hasLivePods reports whether pods of the Job are left that have not ended.
func hasLivePods(ctx context.Context, reader client.Reader, namespace string, job *v1alpha1.HolderReference) (bool, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := reader.List(ctx, pods, client.InNamespace(namespace), client.Limit(1),
		client.MatchingLabels{jobUIDLabel: string(job.UID)}, client.MatchingFieldsSelector{Selector: livePods})
	return len(pods.Items) > 0, err
}
