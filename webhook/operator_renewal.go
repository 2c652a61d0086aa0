package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

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
	text, isSet := found.Annotations[v1alpha1.MaxOperatorRenewalAnnotation]
	if !isSet {
		return limits, nil
	}
	longest, err := time.ParseDuration(text)
	if err != nil || longest <= 0 {
		// It allows nothing: a mistake must not open what the annotation bounds. The refusal names the annotation.
		logf.FromContext(ctx).V(1).Info("The annotation of a namespace is no positive duration with units, such as 720h",
			"namespace", namespace, "annotation", v1alpha1.MaxOperatorRenewalAnnotation, "value", text)
		return limits, nil
	}
	limits.MaxOperatorRenewal = longest
	return limits, nil
}
