package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// restoredMetadata are the fields of metadata that the API server sets back to their stored values in
// an update. Flux, for one, sends an empty creationTimestamp.
var restoredMetadata = []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "selfLink", "uid"}

// lastAppliedAnnotation is what kubectl apply records on the client's side: corev1's
// LastAppliedConfigAnnotation, whose package would come with every program that takes locks.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// IsUnchanged reports whether the API server will find nothing to write when updated replaces old,
// both as JSON. Like the API server, it compares the text of all fields except the times in
// managedFields and what it sets back itself. Another spelling of the same ttl is a change.
func IsUnchanged(old, updated []byte) (bool, error) {
	return isSame(old, updated, func(metadata map[string]any) {
		entries, _ := metadata["managedFields"].([]any)
		for _, entry := range entries {
			if fields, ok := entry.(map[string]any); ok {
				delete(fields, "time")
			}
		}
	})
}

// IsUnchangedExceptManagers is [IsUnchanged] for a request that may also change who manages which field.
func IsUnchangedExceptManagers(old, updated []byte) (bool, error) {
	return isSame(old, updated, func(metadata map[string]any) { delete(metadata, "managedFields") })
}

// isSame compares objects without the metadata that ignore removes.
func isSame(old, updated []byte, ignore func(metadata map[string]any)) (bool, error) {
	before, err := without(old, ignore)
	if err != nil {
		return false, err
	}
	after, err := without(updated, ignore)
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(before, after), nil
}

func without(text []byte, ignore func(metadata map[string]any)) (map[string]any, error) {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("decode the lock: %w", err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	for _, name := range restoredMetadata {
		delete(metadata, name)
	}
	ignore(metadata)
	return object, nil
}

// isApplied reports whether the change applies a manifest, on the client's side or the server's. A
// user who applies the manifest of a lock wants to hold it, even if the manifest changes nothing.
//
// The API server does not say that a request applies, so managedFields must show it. All users may
// write these, under any name of a manager, and remove them; then an apply lists what was there
// before as an update. So no update makes up for fields of spec that were applied.
func isApplied(updated, old *v1alpha1.Lock) bool {
	manifest := updated.Annotations[lastAppliedAnnotation]
	if manifest != "" && manifest != old.Annotations[lastAppliedAnnotation] {
		return true
	}
	before := managedSpecs(old, metav1.ManagedFieldsOperationApply)
	for owner, spec := range managedSpecs(updated, metav1.ManagedFieldsOperationApply) {
		former := before[owner]
		switch {
		case !includes(former.fields, spec.fields), !spec.time.Equal(former.time):
			return true
		case !includes(spec.fields, former.fields) && !isUpdated(updated, old):
			// An update takes fields from the managers that applied them if it spells a value
			// differently; an apply gives them up.
			return true
		}
	}
	return false
}

// releaseAnnotations are set by Helm on what a release is to consist of. Without server-side apply, Helm
// sends nothing else of a manifest that equals the stored lock.
var releaseAnnotations = []string{"meta.helm.sh/release-name", "meta.helm.sh/release-namespace"}

// claimsRelease reports whether the change makes the lock a part of a release of Helm, which will delete
// it with the release.
func claimsRelease(next, old *v1alpha1.Lock) bool {
	return slices.ContainsFunc(releaseAnnotations, func(name string) bool {
		release := next.Annotations[name]
		return release != "" && release != old.Annotations[name]
	})
}

// appliesFields reports whether the field manager has applied fields of the object. A request of it
// that changes nothing is its manifest, applied again.
func appliesFields(lock *v1alpha1.Lock, manager string) bool {
	return slices.ContainsFunc(lock.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// isForeignApply reports whether another user than the holder makes the change under the name of a field
// manager that has applied fields of spec. A manifest that is applied again may show in nothing else: its
// entry keeps its fields, and its time if that is of the same second. An update under such a name counts, too. The reason for
// a forced release does not: a holder could write managedFields that keep it out.
func (c Change) isForeignApply(next *v1alpha1.Lock) bool {
	if c.User.Holds(c.Old) || c.FieldManager == "" || forceReason(next) != forceReason(c.Old) {
		return false
	}
	for owner := range managedSpecs(c.Old, metav1.ManagedFieldsOperationApply) {
		if owner.manager == c.FieldManager {
			return true
		}
	}
	return false
}

// isUpdated reports whether an update has made its manager the manager of further fields of spec.
func isUpdated(updated, old *v1alpha1.Lock) bool {
	before := managedSpecs(old, metav1.ManagedFieldsOperationUpdate)
	for owner, spec := range managedSpecs(updated, metav1.ManagedFieldsOperationUpdate) {
		if !includes(before[owner].fields, spec.fields) {
			return true
		}
	}
	return false
}

// fieldOwner identifies an entry of managedFields among those of one operation. The name of the
// manager alone does not.
type fieldOwner struct{ manager, apiVersion, subresource string }

// managedSpec is what an entry of managedFields says about spec.
type managedSpec struct {
	fields map[string]any
	// time is when the manager last changed the object by the operation. The entry keeps it while
	// others write.
	time *metav1.Time
}

// managedSpecs returns the fields of spec that are managed by the operation. Entries without any
// are left out: applied labels are no claim.
func managedSpecs(lock *v1alpha1.Lock, operation metav1.ManagedFieldsOperationType) map[fieldOwner]managedSpec {
	specs := map[fieldOwner]managedSpec{}
	for _, entry := range lock.ManagedFields {
		if entry.Operation != operation || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && len(fields.Spec) > 0 {
			specs[fieldOwner{entry.Manager, entry.APIVersion, entry.Subresource}] = managedSpec{fields.Spec, entry.Time}
		}
	}
	return specs
}

// includes reports whether the set has all fields, the nested ones too.
func includes(set, fields map[string]any) bool {
	for name, value := range fields {
		known, isKnown := set[name]
		if !isKnown {
			return false
		}
		knownNested, _ := known.(map[string]any)
		nested, _ := value.(map[string]any)
		if !includes(knownNested, nested) {
			return false
		}
	}
	return true
}
