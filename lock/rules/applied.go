package rules

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// isApplied reports whether the change is that of a manifest being applied, on the
// client's side or the server's. Whoever applies the manifest of a lock wants to
// hold it, even where the manifest says nothing that is not so already.
func isApplied(updated, old *v1alpha1.Lock) bool {
	manifest := updated.Annotations[corev1.LastAppliedConfigAnnotation]
	if manifest != "" && manifest != old.Annotations[corev1.LastAppliedConfigAnnotation] {
		return true
	}
	return !equality.DeepEqual(applies(updated), applies(old))
}

// isUnchanged reports whether the API server will find nothing to write.
func isUnchanged(updated, old *v1alpha1.Lock) bool {
	return equality.DeepEqual(withoutTimes(updated), withoutTimes(old))
}

// applies returns who manages what by server-side apply.
func applies(lock *v1alpha1.Lock) []metav1.ManagedFieldsEntry {
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range lock.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			entry.Time = nil
			entries = append(entries, entry)
		}
	}
	return entries
}

// withoutTimes drops when fields were managed, which alone is no change to the API
// server.
func withoutTimes(lock *v1alpha1.Lock) *v1alpha1.Lock {
	lock = lock.DeepCopy()
	for index := range lock.ManagedFields {
		lock.ManagedFields[index].Time = nil
	}
	return lock
}
