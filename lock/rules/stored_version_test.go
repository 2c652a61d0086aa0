package rules

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Tools with an option to force a change answer a conflict by deleting the lock, clients by trying again.
func TestAnotherVersionIsAConflictUnlessAManifestNamesIt(t *testing.T) {
	applied := func(version string) map[string]string {
		return map[string]string{lastAppliedAnnotation: `{"metadata":{"resourceVersion":"` + version + `"}}`}
	}
	by := func(manager string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:key":{}}}`)}
	}
	for name, test := range map[string]struct {
		version     string
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		want        error
	}{
		"none":             {},
		"the stored one":   {version: "7", annotations: applied("7")},
		"by an update":     {version: "6", want: ErrStale},
		"by kubectl apply": {version: "6", annotations: applied("6"), want: ErrInvalid},
		"by an update of a lock with a version in its manifest": {version: "6", annotations: applied("3"), want: ErrStale},
		"by an update of a lock with a manifest that is none":   {version: "6", annotations: map[string]string{lastAppliedAnnotation: "{"}, want: ErrStale},
		"by a server-side apply":                                {version: "6", fields: []metav1.ManagedFieldsEntry{by("flux", metav1.ManagedFieldsOperationApply)}, want: ErrInvalid},
		"by an update of what another manager has applied":      {version: "6", fields: []metav1.ManagedFieldsEntry{by("argo", metav1.ManagedFieldsOperationApply)}, want: ErrStale},
		"by an update of a manager that applies as well": {version: "6", want: ErrStale, fields: []metav1.ManagedFieldsEntry{
			by("flux", metav1.ManagedFieldsOperationApply), by("flux", metav1.ManagedFieldsOperationUpdate),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			old := manifested(t)
			old.ManagedFields = test.fields
			next := old.DeepCopy()
			next.ResourceVersion, next.Annotations = test.version, test.annotations
			_, _, err := AdmitUpdate(Change{Old: old, Updated: next, User: User{Name: "alice"}, FieldManager: "flux"}, DefaultLimits(), noon, 0)
			if !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestAManifestOfAnotherObjectIsInvalid(t *testing.T) {
	old := manifested(t)
	old.UID = "stored"
	for uid, isValid := range map[types.UID]bool{"": true, "stored": true, "other": false} {
		next := old.DeepCopy()
		next.UID = uid
		err := Change{Old: old, Updated: next}.ValidateStored(next, []byte(`{}`))
		if (err == nil) != isValid {
			t.Errorf("the UID %q: %v", uid, err)
		}
	}
}

// manifested is a lock that alice took at noon by a manifest.
func manifested(t *testing.T) *v1alpha1.Lock {
	t.Helper()
	lock, _, err := AdmitCreate(&v1alpha1.Lock{Spec: v1alpha1.LockSpec{Key: "declared", Scope: v1alpha1.ScopeGlobal, Owner: "repository", TTL: &v1alpha1.Duration{Duration: time.Hour}}},
		User{Name: "alice"}, DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	lock.ResourceVersion = "7"
	return lock
}
