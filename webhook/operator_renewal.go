package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// limitsFor returns the limits for a request in the namespace. Only one that asks for a lock that the operator
// renews costs a read of the namespace, from the API server: the administrator may just have changed it.
func (a *LockAdmission) limitsFor(ctx context.Context, namespace string, asksForRenewal bool) (rules.Limits, error) {
	limits := a.Limits
	if !asksForRenewal {
		return limits, nil
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := a.LiveReader.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return limits, fmt.Errorf("read the annotation %s of the namespace: %w", v1alpha1.MaxOperatorRenewalAnnotation, err)
	}
	limits.MaxOperatorRenewal = operatorRenewal(found.Annotations[v1alpha1.MaxOperatorRenewalAnnotation])
	return limits, nil
}

// operatorRenewal returns the time that the annotation allows: none if it is no positive duration, since a mistake must not
// open what it bounds.
func operatorRenewal(annotation string) time.Duration {
	longest, err := time.ParseDuration(annotation)
	if err != nil {
		return 0
	}
	return max(longest, 0)
}
