package rules

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestIsApplied(t *testing.T) {
	manages := func(operation metav1.ManagedFieldsOperationType, manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(`{"f:spec":` + fields + `}`)}
	}
	applies := func(manager, fields string) metav1.ManagedFieldsEntry {
		return manages(metav1.ManagedFieldsOperationApply, manager, fields)
	}
	updates := func(manager, fields string) metav1.ManagedFieldsEntry {
		return manages(metav1.ManagedFieldsOperationUpdate, manager, fields)
	}
	const keyAndTTL, key, ttl = `{"f:key":{},"f:ttl":{}}`, `{"f:key":{}}`, `{"f:ttl":{}}`
	type entries = []metav1.ManagedFieldsEntry
	cases := map[string]struct {
		old, updated entries
		want         bool
	}{
		"applied for the first time":                {nil, entries{applies("argocd", key)}, true},
		"applied with more":                         {entries{applies("argocd", key)}, entries{applies("argocd", keyAndTTL)}, true},
		"applied with less":                         {entries{applies("argocd", keyAndTTL)}, entries{applies("argocd", key)}, true},
		"applied by one more":                       {entries{applies("argocd", key)}, entries{applies("argocd", key), applies("flux", key)}, true},
		"applied by force, over an update":          {entries{updates("kubectl", keyAndTTL)}, entries{updates("kubectl", key), applies("flux", ttl)}, true},
		"the same manifest":                         {entries{applies("argocd", key)}, entries{applies("argocd", key)}, false},
		"an update that spells a value another way": {entries{applies("argocd", keyAndTTL)}, entries{applies("argocd", key), updates("sdk", ttl)}, false},
		"another update that does":                  {entries{applies("argocd", keyAndTTL), updates("sdk", key)}, entries{applies("argocd", key), updates("sdk", keyAndTTL)}, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old, updated := &v1alpha1.Lock{}, &v1alpha1.Lock{}
			old.ManagedFields, updated.ManagedFields = test.old, test.updated
			if got := isApplied(updated, old); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
