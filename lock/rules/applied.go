package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// IsUnchanged reports whether the API server will find nothing to write when updated replaces old,
// both as JSON. Like the API server, it compares the text of all fields except the times in
// managedFields. Another spelling of the same ttl is a change.
func IsUnchanged(old, updated []byte) (bool, error) {
	before, err := withoutTimes(old)
	if err != nil {
		return false, err
	}
	after, err := withoutTimes(updated)
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(before, after), nil
}

func withoutTimes(text []byte) (map[string]any, error) {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("decode the lock: %w", err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		if fields, ok := entry.(map[string]any); ok {
			delete(fields, "time")
		}
	}
	return object, nil
}

// isApplied reports whether the change applies a manifest, on the client's side or the server's. A
// user who applies the manifest of a lock wants to hold it, even if the manifest changes nothing.
func isApplied(updated, old *v1alpha1.Lock) bool {
	manifest := updated.Annotations[corev1.LastAppliedConfigAnnotation]
	if manifest != "" && manifest != old.Annotations[corev1.LastAppliedConfigAnnotation] {
		return true
	}
	if isUpdated(updated, old) {
		// A request is an update or an apply, not both. An update takes fields from the managers
		// that applied them if it spells a value differently.
		return false
	}
	before := specFields(old, metav1.ManagedFieldsOperationApply)
	for manager, fields := range specFields(updated, metav1.ManagedFieldsOperationApply) {
		if !reflect.DeepEqual(before[manager], fields) {
			return true
		}
	}
	return false
}

// appliesFields reports whether the field manager has applied fields of the object. A request of it
// that changes nothing is its manifest, applied again.
func appliesFields(lock *v1alpha1.Lock, manager string) bool {
	return slices.ContainsFunc(lock.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// isUpdated reports whether an update has made its manager the manager of further fields of spec.
func isUpdated(updated, old *v1alpha1.Lock) bool {
	before := specFields(old, metav1.ManagedFieldsOperationUpdate)
	for manager, fields := range specFields(updated, metav1.ManagedFieldsOperationUpdate) {
		for field := range fields {
			if _, isKnown := before[manager][field]; !isKnown {
				return true
			}
		}
	}
	return false
}

// specFields returns the fields of spec that each manager manages by the operation. Managers of
// none are left out: applied labels are no claim.
func specFields(lock *v1alpha1.Lock, operation metav1.ManagedFieldsOperationType) map[string]map[string]any {
	specs := map[string]map[string]any{}
	for _, entry := range lock.ManagedFields {
		if entry.Operation != operation || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && len(fields.Spec) > 0 {
			specs[entry.Manager] = fields.Spec
		}
	}
	return specs
}
