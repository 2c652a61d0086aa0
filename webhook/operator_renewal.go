package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/usage"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// limitsFor returns the limits for a request about the lock. Only one that asks for a lock that the operator
// renews costs a read of the namespace, from the API server: the administrator may just have changed it.
func (a *LockAdmission) limitsFor(ctx context.Context, name client.ObjectKey, asksForRenewal bool) (rules.Limits, error) {
	limits := a.Limits
	if !asksForRenewal {
		return limits, nil
	}
	if err := a.checkRenewalRoom(ctx, name); err != nil {
		return limits, err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := a.LiveReader.Get(ctx, client.ObjectKey{Name: name.Namespace}, found); err != nil {
		return limits, fmt.Errorf("read the annotation %s of the namespace: %w", v1alpha1.MaxOperatorRenewalAnnotation, err)
	}
	limits.MaxOperatorRenewal = rules.MaxOperatorRenewal(found.Annotations[v1alpha1.MaxOperatorRenewalAnnotation], a.MaxOperatorRenewal)
	return limits, nil
}

// checkRenewalRoom refuses one more lock that the operator renews in a namespace which has as many as it may have.
// It reads the cache only.
func (a *LockAdmission) checkRenewalRoom(ctx context.Context, name client.ObjectKey) error {
	if !a.OperatorRenewals.IsFull(name.Namespace) {
		return nil
	}
	// A lock that is acquired anew has its room already.
	var known v1alpha1.Lock
	err := a.Client.Get(ctx, name, &known)
	if err == nil && known.Spec.RenewalPolicy == v1alpha1.RenewalByOperator {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return &rules.InvalidError{Problems: field.ErrorList{field.Forbidden(field.NewPath("spec", "renewalPolicy"), fmt.Sprintf(
		"the namespace has as many locks that the operator renews as it may have, %d; release some", a.OperatorRenewals.Max()))}}
}

// CountOperatorRenewals returns a bound on the locks of a namespace that the operator renews, as the informer shows them.
func CountOperatorRenewals(informer cache.Informer, most int) (*usage.Bound, error) {
	bound := usage.NewBound(most)
	_, err := informer.AddEventHandler(toolscache.FilteringResourceEventHandler{Handler: bound, FilterFunc: func(object any) bool {
		if last, isGone := object.(toolscache.DeletedFinalStateUnknown); isGone {
			object = last.Obj
		}
		lock, isLock := object.(*v1alpha1.Lock)
		return isLock && lock.Spec.RenewalPolicy == v1alpha1.RenewalByOperator
	}})
	if err != nil {
		return nil, fmt.Errorf("count the locks that the operator renews: %w", err)
	}
	return bound, nil
}
