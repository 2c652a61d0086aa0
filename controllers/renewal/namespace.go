package renewal

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

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// allowedIn returns for how long the namespace and the cluster allow the operator to renew a lock.
func (r *Reconciler) allowedIn(ctx context.Context, reader client.Reader, name string) (time.Duration, error) {
	namespace := metadataOfNamespaces()
	if err := client.IgnoreNotFound(reader.Get(ctx, client.ObjectKey{Name: name}, namespace)); err != nil {
		return 0, fmt.Errorf("read the annotation %s of the namespace: %w", v1alpha1.MaxOperatorRenewalAnnotation, err)
	}
	return rules.MaxOperatorRenewal(namespace.Annotations[v1alpha1.MaxOperatorRenewalAnnotation], r.MaxOperatorRenewal), nil
}

func metadataOfNamespaces() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// StripNamespace reduces the metadata of a namespace to what this package reads, and returns any other object as it
// is. It is a transform of the cache that the Client of a [Reconciler] reads from.
func StripNamespace(object any) (any, error) {
	namespace, isMetadata := object.(*metav1.PartialObjectMetadata)
	if !isMetadata || namespace.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Namespace") {
		return object, nil
	}
	stripped := metadataOfNamespaces()
	stripped.Name, stripped.UID, stripped.ResourceVersion = namespace.Name, namespace.UID, namespace.ResourceVersion
	if allowed, isSet := namespace.Annotations[v1alpha1.MaxOperatorRenewalAnnotation]; isSet {
		stripped.Annotations = map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: allowed}
	}
	return stripped, nil
}
