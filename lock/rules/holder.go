package rules

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// HolderRefPath is the path of the field that names the object that a Lock is held for.
var HolderRefPath = field.NewPath("spec", "holderRef")

var delayPath = field.NewPath("spec", "releaseDelay")

// IsPod reports whether the reference names a Pod.
func IsPod(ref *v1alpha1.HolderReference) bool {
	return groupKind(ref) == schema.GroupKind{Kind: "Pod"}
}

// IsJob reports whether the reference names a Job.
func IsJob(ref *v1alpha1.HolderReference) bool {
	return groupKind(ref) == schema.GroupKind{Group: "batch", Kind: "Job"}
}

func groupKind(ref *v1alpha1.HolderReference) schema.GroupKind {
	if ref == nil {
		return schema.GroupKind{}
	}
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// ValidReference is a holderRef that has been validated: its texts cannot turn the request for the
// object into one for another. Only [Acquisition.Validate], [AdmitCreate] and [AdmitUpdate] make
// one; its zero value names nothing. Whether the object exists is not known.
type ValidReference struct{ ref v1alpha1.HolderReference }

// HolderReference returns the reference itself.
func (r ValidReference) HolderReference() v1alpha1.HolderReference { return r.ref }

// validated returns a reference that its caller has found to be valid, or nil if there is none.
func validated(ref *v1alpha1.HolderReference) *ValidReference {
	if ref == nil {
		return nil
	}
	return &ValidReference{*ref}
}

// newHolder returns the object that a valid lock names and its former state did not, or nil.
func newHolder(valid, former *v1alpha1.Lock) *ValidReference {
	if equality.DeepEqual(valid.Spec.HolderRef, former.Spec.HolderRef) {
		return nil
	}
	return validated(valid.Spec.HolderRef)
}

// validateHolder reports mistakes in the holderRef and the releaseDelay, without reading the
// object.
func validateHolder(spec *v1alpha1.LockSpec) field.ErrorList {
	var problems field.ErrorList
	if ref := spec.HolderRef; ref != nil {
		problems = validateReference(ref)
	}
	switch delay := spec.ReleaseDelay; {
	case delay == nil:
	case delay.Duration < 0 || delay.Duration > v1alpha1.MaxReleaseDelay:
		problems = append(problems, field.Invalid(delayPath, delay.Duration.String(),
			fmt.Sprintf("must be at least 0s and at most %s", v1alpha1.MaxReleaseDelay)))
	case spec.HolderRef == nil:
		problems = append(problems, field.Forbidden(delayPath, "needs a holderRef: it counts from the end of that object"))
	}
	return problems
}

// validateReference reports mistakes in the text of a reference that would make it request another
// object.
func validateReference(ref *v1alpha1.HolderReference) field.ErrorList {
	var problems field.ErrorList
	bounded := func(name, value string, limit int) {
		switch path := HolderRefPath.Child(name); {
		case value == "":
			problems = append(problems, field.Required(path, "a reference needs all four fields"))
		case utf8.RuneCountInString(value) > limit: // as the schema counts
			problems = append(problems, field.TooLongCharacters(path, value, limit))
		}
	}
	bounded("apiVersion", ref.APIVersion, 317)
	bounded("kind", ref.Kind, 63)
	bounded("name", ref.Name, 253)
	bounded("uid", string(ref.UID), 128)
	if ref.APIVersion != "" && !isGroupVersion(ref.APIVersion) {
		problems = append(problems, field.Invalid(HolderRefPath.Child("apiVersion"), ref.APIVersion, "must be version or group/version, such as v1 or batch/v1"))
	}
	for _, problem := range content.IsPathSegmentName(ref.Name) {
		problems = append(problems, field.Invalid(HolderRefPath.Child("name"), ref.Name, problem))
	}
	return problems
}

// isGroupVersion is stricter than the parser: group and version become part of a request path, and
// ".." would change that path.
func isGroupVersion(text string) bool {
	parsed, err := schema.ParseGroupVersion(text)
	return err == nil && len(content.IsDNS1123Label(parsed.Version)) == 0 &&
		(parsed.Group == "" || len(content.IsDNS1123Subdomain(parsed.Group)) == 0)
}

// dropHolderOwner removes owner references to the objects of holderRef and former. The operator ends
// a lock with its holder, after its releaseDelay and after the pods of a Job. The garbage collector
// would wait for neither, and before Kubernetes 1.34 could delete the lock of the next holder.
func dropHolderOwner(next *v1alpha1.Lock, former *v1alpha1.HolderReference) {
	next.OwnerReferences = slices.DeleteFunc(slices.Clone(next.OwnerReferences), func(owner metav1.OwnerReference) bool {
		ref := next.Spec.HolderRef
		return ref != nil && owner.UID == ref.UID || former != nil && owner.UID == former.UID
	})
}

// holderChanged applies a holder's change to holderRef and releaseDelay, and reports mistakes in
// them.
func holderChanged(next, old *v1alpha1.Lock) field.ErrorList {
	if !equality.DeepEqual(next.Spec.HolderRef, old.Spec.HolderRef) {
		next.Spec.HolderEndTime = nil
	}
	dropHolderOwner(next, old.Spec.HolderRef)
	return validateHolder(&next.Spec)
}

func releaseDelay(lock *v1alpha1.Lock) time.Duration {
	if lock.Spec.ReleaseDelay == nil {
		return 0
	}
	return max(0, lock.Spec.ReleaseDelay.Duration)
}

// UntilHolderReleased returns how long after now a lock stays whose holderRef has ended; zero or
// less if it is to be released. If the lock stays, the first controller that finds the end records
// it, see [RecordHolderEnd].
func UntilHolderReleased(lock *v1alpha1.Lock, now time.Time) time.Duration {
	delay := releaseDelay(lock)
	if lock.Spec.HolderEndTime == nil || delay == 0 {
		return delay
	}
	// A clock that was ahead must not prolong the delay.
	return min(delay, lock.Spec.HolderEndTime.Add(delay).Sub(now))
}

// RecordHolderEnd returns the object to update the lock with when the object of holderRef has
// ended. The update must be conditional.
func RecordHolderEnd(current *v1alpha1.Lock, now time.Time) (*v1alpha1.Lock, error) {
	next := current.DeepCopy()
	at := v1alpha1.NewTimestamp(now)
	next.Spec.HolderEndTime = &at
	return next, recordToken(next, current)
}
