package rules

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxBytes bounds the JSON of a lock, of which spec can be a tenth. Every replica keeps all
	// locks in memory.
	maxBytes = 128 << 10
	// maxForeignBytes bounds the JSON of a lock that users other than the holder change: each
	// renewal writes all of it again. The difference to maxBytes leaves room for the renewal.
	maxForeignBytes = 64 << 10
)

// ValidateSize checks the size of the JSON of a new lock. The error is an [*InvalidError].
func ValidateSize(bytes int) error { return validateSize(0, bytes, maxBytes) }

// ValidateSize checks the size of the lock's JSON, given the bytes before and after the change. A
// change that does not enlarge the lock is allowed. The error is an [*InvalidError].
func (c Change) ValidateSize(before, after int, now time.Time) error {
	switch {
	case slices.Contains(garbageCollectors, c.User):
		return nil
	case c.User != c.Old.Spec.Holder && !Expired(c.Old, now):
		return validateSize(before, after, maxForeignBytes)
	}
	return validateSize(before, after, maxBytes)
}

func validateSize(before, after, limit int) error {
	if after <= limit || after <= before {
		return nil
	}
	return &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("metadata"), field.OmitValueType{},
		fmt.Sprintf("makes the lock %d bytes large; at most %d are allowed; use fewer labels and annotations", after, limit))}}
}
