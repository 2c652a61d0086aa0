package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

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
	const ref, refAndUID = `{"f:holderRef":{"f:name":{}}}`, `{"f:holderRef":{"f:name":{},"f:uid":{}}}`
	// What an apply records as its first if the lock has no managed fields.
	const before = "before-first-apply"
	at := func(minute int, entry metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		entry.Time = &metav1.Time{Time: noon.Add(time.Duration(minute) * time.Minute)}
		return entry
	}
	of := func(apiVersion, subresource string, entry metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		entry.APIVersion, entry.Subresource = apiVersion, subresource
		return entry
	}
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
		"applied after the entries were removed":    {nil, entries{applies("kubectl", key), updates(before, keyAndTTL)}, true},
		"… under the name of what was before":       {nil, entries{applies(before, key), updates(before, keyAndTTL)}, true},
		"an update under that name":                 {entries{applies("argocd", keyAndTTL)}, entries{applies("argocd", key), updates(before, ttl)}, false},
		"removed":                                   {entries{applies("argocd", keyAndTTL), updates("sdk", ttl)}, nil, false},
		"planted, with an update":                   {entries{updates("sdk", key)}, entries{applies("kubectl", key), updates("sdk", keyAndTTL)}, true},
		"planted in an entry, with an update":       {entries{applies("kubectl", key)}, entries{applies("kubectl", keyAndTTL), updates("sdk", ttl)}, true},
		"applied with more of a struct":             {entries{applies("argocd", ref)}, entries{applies("argocd", refAndUID)}, true},
		"applied with less of a struct":             {entries{applies("argocd", refAndUID)}, entries{applies("argocd", ref)}, true},
		"applied beside an entry of a subresource":  {entries{of("", "status", applies("kubectl", key))}, entries{applies("kubectl", key), of("", "status", applies("kubectl", key))}, true},
		"applied in another version":                {entries{of("v1", "", applies("kubectl", key))}, entries{of("v2", "", applies("kubectl", key))}, true},
		"given up, behind the updates of a version": {
			entries{applies("argocd", keyAndTTL), of("v1", "", updates("sdk", ttl)), of("v2", "", updates("sdk", key))},
			entries{applies("argocd", key), of("v1", "", updates("sdk", ttl))}, true,
		},
		"the same spec with other labels, later":        {entries{at(1, applies("argocd", key))}, entries{at(2, applies("argocd", key))}, true},
		"the same spec with other labels, by an update": {entries{at(1, applies("argocd", key))}, entries{at(1, applies("argocd", key)), at(2, updates("sdk", key))}, false},
		"another update that does":                      {entries{applies("argocd", keyAndTTL), updates("sdk", key)}, entries{applies("argocd", key), updates("sdk", keyAndTTL)}, false},
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

func TestAnApplyUnderTheNameOfAnApplierIsAClaim(t *testing.T) {
	unchanged := func(*v1alpha1.Lock) {}
	relabelled := func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" }
	cases := map[string]struct {
		applied       func(*v1alpha1.Lock)
		user, manager string
		change        func(*v1alpha1.Lock)
		now           float64
		wantErr       error
	}{
		"the same manifest by another user":                     {serverSideApplied, "bob", "argocd", unchanged, 10, ErrHeld},
		"with other labels in the same second":                  {serverSideApplied, "bob", "argocd", relabelled, 10, ErrHeld},
		"of an expired lock, without an owner token of its own": {serverSideApplied, "bob", "argocd", unchanged, 31, ErrInvalid},
		"by the holder":                                           {serverSideApplied, "alice", "argocd", unchanged, 10, nil},
		"by the holder, with other labels":                        {serverSideApplied, "alice", "argocd", relabelled, 10, nil},
		"a label by another manager":                              {serverSideApplied, "bob", "kubectl-label", relabelled, 10, nil},
		"a label of a manager without a name":                     {serverSideApplied, "bob", "", relabelled, 10, nil},
		"the same labels by another user, who applied them alone": {serverSideLabelled, "bob", "argocd", unchanged, 10, nil},
		"a reason for a forced release, whatever the manager": {serverSideApplied, "bob", "argocd", func(l *v1alpha1.Lock) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, "stuck")
		}, 10, nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old := referenced()
			test.applied(old)
			updated := old.DeepCopy()
			test.change(updated)
			submitted := change(t, old, updated, test.user)
			submitted.FieldManager = test.manager
			if _, _, err := AdmitUpdate(submitted, DefaultLimits(), at(test.now).Time, time.Second); !errors.Is(err, test.wantErr) {
				t.Errorf("got %v, want %v", err, test.wantErr)
			}
		})
	}
}

// The answer to a dry run is what a GitOps tool compares with the stored lock.
func TestADryRunThatChangesNothingShowsNoToken(t *testing.T) {
	const stored = `{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"spec":{"ttl":"60m"}}`
	managed := strings.Replace(stored, `"m"`, `"n"`, 1)
	if isSame, err := IsUnchangedExceptManagers([]byte(stored), []byte(managed)); err != nil || !isSame {
		t.Errorf("another manager is a change: %v", err)
	}
	if isSame, err := IsUnchangedExceptManagers([]byte(stored), []byte(strings.Replace(stored, "60m", "1h", 1))); err != nil || isSame {
		t.Errorf("another ttl is no change: %v", err)
	}
	old := &v1alpha1.Lock{}
	old.ResourceVersion = "7"
	at := v1alpha1.NewTimestamp(time.Now())
	expire := v1alpha1.NewTimestamp(at.Add(time.Hour))
	old.Spec = v1alpha1.LockSpec{
		Key: "key", Owner: "owner", Holder: "alice", TTL: &v1alpha1.Duration{Duration: time.Hour}, AcquireTime: &at, RenewTime: &at, ExpireTime: &expire,
	}
	for _, isUnchanged := range []bool{true, false} {
		for _, isTrial := range []bool{true, false} {
			change := Change{Old: old, Updated: old.DeepCopy(), IsUnchanged: isUnchanged, IsTrial: isTrial, User: User{Name: "alice"}}
			admitted, _, err := AdmitUpdate(change, DefaultLimits(), time.Now(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if (admitted.Spec.FencingToken == nil) != isTrial {
				t.Errorf("unchanged %t, a trial %t: the token is %v", isUnchanged, isTrial, admitted.Spec.FencingToken)
			}
		}
	}
}
