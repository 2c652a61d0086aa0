package rules

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxBytes is how large the JSON of a lock may be. Whatever of it is spec takes a tenth.
	// Every replica has all locks in its memory.
	maxBytes = 128 << 10
	// maxForeignBytes is how large others than the holder may make a lock, all of which each
	// renewal writes again. There is always room for what a renewal adds.
	maxForeignBytes = 64 << 10
)

// ValidateSize judges the bytes of the JSON of a lock that is created. The error is an
// [*InvalidError].
func ValidateSize(bytes int) error { return validateSize(0, bytes, maxBytes) }

// ValidateSize judges how large the change makes the lock, of which it is given the bytes
// of the JSON before and after it. What makes it no larger is allowed. The error is an
// [*InvalidError].
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
		fmt.Sprintf("makes the lock %d bytes large, of which %d are allowed; use fewer labels and annotations", after, limit))}}
}
