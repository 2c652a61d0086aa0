package guard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

func resourceOf(request admission.Request) schema.GroupResource {
	return schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
}

// head is what decisions take from an object.
type head struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      labels.Set        `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// mayBeFenced reports whether the request is worth a look for [v1alpha1.FencedByAnnotation]: the API
// server writes JSON without escapes in such a name.
func mayBeFenced(request admission.Request) bool {
	name := []byte(v1alpha1.FencedByAnnotation)
	return bytes.Contains(request.OldObject.Raw, name) || bytes.Contains(request.Object.Raw, name)
}

// targetOf returns the object of the request, and the keys by which it is fenced: that before the
// change and that after it.
func targetOf(request admission.Request) (target rules.Target, fences []string, err error) {
	target = rules.Target{Resource: resourceOf(request), Name: request.Name}
	for _, raw := range [][]byte{request.OldObject.Raw, request.Object.Raw} {
		if len(raw) == 0 {
			continue
		}
		var object head
		if err := json.Unmarshal(raw, &object); err != nil {
			return target, nil, fmt.Errorf("decode the object: %w", err)
		}
		// The request for a collection has no name.
		target.Name = cmp.Or(target.Name, object.Metadata.Name)
		target.Labels = append(target.Labels, object.Metadata.Labels)
		if key := object.Metadata.Annotations[v1alpha1.FencedByAnnotation]; key != "" && !slices.Contains(fences, key) {
			fences = append(fences, key)
		}
	}
	return target, fences, nil
}

// readLabels sets the labels of the object itself if the request is about its scale, which has none, and
// a lock may guard it by them. A write of the status has the object.
func (a *Admission) readLabels(ctx context.Context, request admission.Request, target *rules.Target, locks []v1alpha1.Lock) error {
	if request.SubResource == "" || request.SubResource == "status" || !slices.ContainsFunc(locks, func(lock v1alpha1.Lock) bool { return hasSelectorFor(&lock, target.Resource) }) {
		return nil
	}
	kind, err := a.Mapper.KindFor(schema.GroupVersionResource{Group: request.Resource.Group, Version: request.Resource.Version, Resource: request.Resource.Resource})
	if err != nil {
		return fmt.Errorf("look up the kind of %s: %w", target.Resource, err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	if err := a.LiveReader.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: target.Name}, object); err != nil {
		return fmt.Errorf("read the labels of %s %q: %w", target.Resource, target.Name, err)
	}
	target.Labels = []labels.Set{object.Labels}
	return nil
}

func hasSelectorFor(lock *v1alpha1.Lock, resource schema.GroupResource) bool {
	return slices.ContainsFunc(lock.Spec.Guards, func(guard v1alpha1.Guard) bool {
		return guard.Selector != nil && rules.GuardedResource(guard) == resource
	})
}
