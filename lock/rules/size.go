package rules

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// MaxBytes bounds the JSON of a lock: each renewal writes all of it, and every replica keeps all
	// locks in memory. The largest request without characters that JSON escapes takes 12 KiB.
	MaxBytes = 16 << 10
	// maxForeignBytes bounds the JSON of a lock that users other than the holder change. The
	// difference to MaxBytes leaves room for the holder's renewal.
	maxForeignBytes = 12 << 10
	// maxSpecBytes bounds the JSON of the spec that a request leads to. The difference to MaxBytes is
	// for the metadata of a lock that a request makes: names and managed fields.
	maxSpecBytes = 14 << 10
	// formerMaxBytes was MaxBytes in versions whose locks may still be held.
	formerMaxBytes = 128 << 10
	// MaxGrowth bounds by how much an allowed change enlarges the JSON of a lock that is larger than
	// MaxBytes, or makes it larger than that: by the reason for a forced release and by the record of who
	// sets which field.
	MaxGrowth = 16 << 10
	// maxEscape is how many bytes of JSON a byte of text takes at most, as in \u003c.
	maxEscape = 6
)

// ValidateSize checks the size of the JSON of a new lock. The error is an [*InvalidError].
func ValidateSize(bytes int) error {
	if bytes <= MaxBytes {
		return nil
	}
	return tooLarge(bytes, MaxBytes)
}

// ValidateSize checks the size of the lock's JSON, given the bytes before and after the change. A
// change that does not enlarge the lock is allowed. So is one that must never fail for the size of the
// lock, if it adds nothing to what users set: the reason for a forced release, the removal of
// finalizers, any change by the holder of what an earlier version has stored, and one that leaves less of
// what users have set in a lock that is too large. The API server's record of who sets which field may
// then make it larger. The error is an [*InvalidError].
func (c Change) ValidateSize(before, after int, now time.Time) error {
	if slices.Contains(garbageCollectors, c.User.Name) {
		return nil
	}
	limit, isForeign := MaxBytes, !c.User.Holds(c.Old)
	if isForeign && !Expired(c.Old, now) {
		limit = maxForeignBytes
	}
	switch {
	case after <= limit, after <= before:
		return nil
	case after-before > MaxGrowth, after > max(before, formerMaxBytes)+MaxGrowth:
		return tooLarge(after, limit)
	}
	old, updated := bytesOfUsers(c.Old), bytesOfUsers(c.Updated)
	mustPass := len(c.Updated.Finalizers) < len(c.Old.Finalizers) ||
		isForeign && forceReason(c.Updated) != forceReason(c.Old) || !isForeign && old > MaxBytes
	if mustPass && updated <= old || before > MaxBytes && updated < old {
		return nil
	}
	return tooLarge(after, limit)
}

// bytesOfUsers returns the bytes of JSON that users set, without those that come and go with requests
// to the service and with the API server's record of who sets which field.
func bytesOfUsers(lock *v1alpha1.Lock) int {
	set := lock.DeepCopy()
	set.ManagedFields = nil
	dropAnnotation(set, v1alpha1.RequestAnnotation)
	dropAnnotation(set, v1alpha1.ForceReleaseReasonAnnotation)
	return jsonBytes(set)
}

func jsonBytes(value any) int {
	text, err := json.Marshal(value)
	if err != nil { // A decoded object can be encoded.
		return math.MaxInt
	}
	return len(text)
}

// validateSpecSize reports a valid request whose texts have so many characters that JSON escapes that
// the lock would be larger than [ValidateSize] permits. Doors write locks that no admission sees.
func (a *Acquisition) validateSpecSize(limits Limits) field.ErrorList {
	texts := len(a.Key) + len(a.Function) + len(a.Owner) + len(a.Reason) + len(a.Holder)
	const shortest = (maxSpecBytes - 2<<10) / maxEscape // The rest are a holderRef and the names of the fields.
	if texts <= shortest {
		return nil
	}
	spec := a.spec(limits)
	spec.Holder = a.Holder
	bytes := jsonBytes(&spec)
	if bytes <= maxSpecBytes {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("reason"), field.OmitValueType{},
		fmt.Sprintf("makes the lock too large: key, function, owner and reason take %d bytes as JSON together; at most %d are allowed", bytes, maxSpecBytes))}
}

func tooLarge(bytes, limit int) error {
	return &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("metadata"), field.OmitValueType{},
		fmt.Sprintf("makes the lock %d bytes large as JSON; at most %d are allowed; use fewer labels and annotations, or shorter texts and guards in spec", bytes, limit))}}
}
