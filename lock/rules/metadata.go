package rules

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// garbageCollectors are the users that remove references to deleted owners from a lock with other
// owners: the garbage collector itself, or the controller manager if its controllers have no
// accounts of their own.
var garbageCollectors = []string{
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:kube-controller-manager",
}

// newFinalizers reports new finalizers: they would keep a lock after its release.
func newFinalizers(next, old *v1alpha1.Lock) field.ErrorList {
	isNew := func(finalizer string) bool { return !slices.Contains(old.Finalizers, finalizer) }
	if !slices.ContainsFunc(next.Finalizers, isNew) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "finalizers"),
		"would keep the lock in place after its release; remove them")}
}

// foreignOwners reports a change of owners by another user: the garbage collector could then
// delete a held lock.
func foreignOwners(next, old *v1alpha1.Lock) field.ErrorList {
	if equality.DeepEqual(next.OwnerReferences, old.OwnerReferences) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "ownerReferences"),
		"may be changed by the holder only: the garbage collector deletes a lock whose owners are gone")}
}

// dropFormerHolder removes owner references, holderRef, renewalPolicy, reason and acquisition ID of the former
// holder, unless next sets its own.
func dropFormerHolder(next, old *v1alpha1.Lock) {
	if equality.DeepEqual(next.OwnerReferences, old.OwnerReferences) {
		next.OwnerReferences = nil
	}
	// A client that sets an acquisition ID writes the whole spec. Equal values are then meant, as
	// between two callers in one Pod.
	isWhole := isNewAcquisition(next, old)
	if !isWhole && equality.DeepEqual(next.Spec.HolderRef, old.Spec.HolderRef) {
		next.Spec.HolderRef, next.Spec.ReleaseDelay = nil, nil
	}
	if !isWhole && next.Spec.RenewalPolicy == old.Spec.RenewalPolicy {
		next.Spec.RenewalPolicy = "" // The lock of the next holder would outlast the ttl that it asked for.
	}
	if next.Spec.Reason == old.Spec.Reason {
		next.Spec.Reason = ""
	}
	if id, ok := old.Annotations[v1alpha1.AcquisitionAnnotation]; ok && next.Annotations[v1alpha1.AcquisitionAnnotation] == id {
		delete(next.Annotations, v1alpha1.AcquisitionAnnotation)
	}
	if ConnectionOf(next) == ConnectionOf(old) {
		delete(next.Annotations, v1alpha1.ConnectionAnnotation)
	}
}

// endFieldManagement makes the API server drop the record of who sets which field, and keep none until a
// user applies the object on the server's side. The record is a quarter of the cost of a write.
func endFieldManagement(next *v1alpha1.Lock) {
	next.ManagedFields = []metav1.ManagedFieldsEntry{{}}
}

// isManifest reports whether a user applies the object as a manifest. The next apply then needs the
// record of who sets which field: without it, what the manifest no longer says would stay.
func isManifest(lock *v1alpha1.Lock) bool {
	_, isApplied := lock.Annotations[lastAppliedAnnotation]
	return isApplied || slices.ContainsFunc(lock.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

func dropAnnotation(lock *v1alpha1.Lock, name string) {
	delete(lock.Annotations, name)
	if len(lock.Annotations) == 0 {
		lock.Annotations = nil
	}
}
