package holders

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endedPods selects the Pods that have ended. The API server sends no others.
var endedPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodPending)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodUnknown)),
)

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// newEndedPods returns a cache of the Pods that have succeeded or failed, with only their
// names, their UIDs and those of their Jobs. The manager's cache stands for all Pods.
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
		return object, nil // the tombstone of a transformed Pod
	}
	kept := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
	if job, ok := pod.Labels[batchv1.ControllerUidLabel]; ok {
		kept.Labels = map[string]string{batchv1.ControllerUidLabel: job}
	}
	pod.ObjectMeta = kept
	return pod, nil
}
