package holderref

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get

// Checker checks that valid references name existing objects. Safe for concurrent use.
type Checker struct {
	// Reader reads from the API server. A cache would need a watch on each kind, and could miss an
	// object as new as its lock.
	Reader client.Reader
	// Mapper knows the resources of Kinds. It is not asked about Pods and Jobs.
	Mapper apimeta.RESTMapper
	// Kinds are those that locks may be held for.
	Kinds Kinds
	// NeedsGrant says that Reader has no right to Pods and Jobs unless an administrator grants it, so
	// that a reference to one may be refused for good. Otherwise the lack of that right is an outage.
	NeedsGrant bool
}

// Check reads the object that holder names in the namespace. The error is a [*rules.InvalidError] if
// its kind is none of Kinds, or if the object does not exist, has ended, or cannot be checked. It does
// not reveal whether another object has the name: the caller may not be allowed to know.
//
// A kind that is none of Kinds costs no request, and neither does a version that the cluster does not
// prefer: the mapper would ask the API server about each that it does not know, one at a time for
// the whole process.
func (c *Checker) Check(ctx context.Context, namespace string, holder rules.ValidReference) error {
	ref := new(holder.HolderReference())
	if !c.Kinds.Has(ref) {
		return invalid(rules.HolderRefPath.Child("kind"), ref.Kind, fmt.Sprintf(
			"is not a kind that locks may be held for with apiVersion %s; lock-operator allows %s, and more by its flag --holder-kinds", ref.APIVersion, strings.Join(c.Kinds.names(), ", ")))
	}
	resource, version := "", versionOf(ref)
	if version == "" {
		mapping, err := c.Mapper.RESTMapping(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
		switch {
		case apimeta.IsNoMatchError(err):
			return invalid(rules.HolderRefPath.Child("kind"), ref.Kind, fmt.Sprintf("apiVersion %s has no such kind in this cluster", ref.APIVersion))
		case err != nil:
			return fmt.Errorf("look up the kind of the holder: %w", err)
		case mapping.Scope.Name() != apimeta.RESTScopeNameNamespace:
			return invalid(rules.HolderRefPath.Child("kind"), ref.Kind, "is a cluster-scoped kind; name an object in the namespace of the lock")
		}
		resource, version = mapping.Resource.GroupResource().String(), mapping.GroupVersionKind.GroupVersion().String()
	}
	if ref.APIVersion != version {
		return invalid(rules.HolderRefPath.Child("apiVersion"), ref.APIVersion, fmt.Sprintf("must be %s for a %s", version, ref.Kind))
	}
	object := ObjectOf(ref)
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, object)
	switch {
	case resource == "" && !c.NeedsGrant && apierrors.IsForbidden(err):
		// The identity may get Pods and Jobs. An API server that has just started may not know that yet.
		return fmt.Errorf("look for the holder: %w", err)
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return invalid(rules.HolderRefPath, field.OmitValueType{}, fmt.Sprintf(
			"cannot be checked: lock-operator may not get %s; ask a cluster administrator to allow it", cmp.Or(resource, resourceOf(ref))))
	case err == nil && object.GetUID() == ref.UID:
		return refuseEnded(object, ref)
	case err == nil, refusal.IsNotFound(err):
		return invalid(rules.HolderRefPath, field.OmitValueType{}, fmt.Sprintf(
			"there is no %s %s with the UID %s in the namespace of the lock, %s", ref.Kind, ref.Name, ref.UID, namespace))
	}
	return fmt.Errorf("look for the holder: %w", err)
}

// resourceOf returns the resource of a Pod or a Job.
func resourceOf(ref *v1alpha1.HolderReference) string {
	if rules.IsPod(ref) {
		return "pods"
	}
	return "jobs.batch"
}

// refuseEnded refuses an object that has already ended: the lock would be released at once.
func refuseEnded(object client.Object, ref *v1alpha1.HolderReference) error {
	how := HowEnded(object)
	if how == "" {
		return nil
	}
	return invalid(rules.HolderRefPath, field.OmitValueType{}, fmt.Sprintf("has already ended: %s %s %s", ref.Kind, ref.Name, how))
}

// ObjectOf returns an empty object to read into: a whole Pod or Job, which can end before they are
// deleted, and only the metadata of other kinds.
func ObjectOf(ref *v1alpha1.HolderReference) client.Object {
	switch {
	case rules.IsPod(ref):
		return &corev1.Pod{}
	case rules.IsJob(ref):
		return &batchv1.Job{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	return object
}

func invalid(path *field.Path, value any, detail string) error {
	return &rules.InvalidError{Problems: field.ErrorList{field.Invalid(path, value, detail)}}
}
