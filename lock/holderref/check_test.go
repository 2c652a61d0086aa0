package holderref_test

import (
	"errors"
	"strings"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

// Without a mapper and a reader: an invalid name must be refused before any request.
func TestCheckRefusesInvalidNamesWithoutARequest(t *testing.T) {
	for name, want := range map[string]string{
		"":                         "spec.holderRef.name",
		"..":                       "spec.holderRef.name",
		"a/b":                      "spec.holderRef.name",
		"%2e%2e":                   "spec.holderRef.name",
		strings.Repeat("n", 1<<20): "spec.holderRef.name",
	} {
		ref := &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: "u"}
		err := (&holderref.Checker{}).Check(t.Context(), "default", ref)
		if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want a refusal of %s", name, err, want)
		}
	}
}
