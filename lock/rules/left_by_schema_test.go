package rules

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestRulesBoundWhatTheSchemaDoesNot checks what the schema leaves to this package, for it would cost
// the API server on each write: bounds in bytes, and that a releaseDelay has a holderRef.
func TestRulesBoundWhatTheSchemaDoesNot(t *testing.T) {
	var (
		texts  = rapid.Map(rapid.SampledFrom([]int{0, 1, 170, 171, 512}), func(n int) string { return strings.Repeat("日", n) })
		delays = rapid.SampledFrom([]*v1alpha1.Duration{nil, {}, {Duration: time.Second}, {Duration: 25 * time.Hour}})
		refs   = rapid.SampledFrom([]*v1alpha1.HolderReference{nil, {APIVersion: "v1", Kind: "Pod", Name: "a", UID: "b"}, {APIVersion: "v1", Kind: "Pod", Name: "c", UID: "d"}})
		users  = rapid.SampledFrom([]User{{Name: "alice"}, {Name: "bob"}})
	)
	rapid.Check(t, func(t *rapid.T) {
		check := func(stored *v1alpha1.Lock) {
			spec := stored.Spec
			if len(spec.Key) > v1alpha1.MaxKeyBytes || len(spec.Function) > v1alpha1.MaxKeyBytes || len(spec.Owner) > v1alpha1.MaxOwnerBytes {
				t.Fatalf("stores %d bytes of key, %d of function, %d of owner", len(spec.Key), len(spec.Function), len(spec.Owner))
			}
			if spec.ReleaseDelay != nil && spec.HolderRef == nil {
				t.Fatal("stores a releaseDelay without a holderRef")
			}
		}
		scope := rapid.SampledFrom([]v1alpha1.Scope{v1alpha1.ScopeGlobal, v1alpha1.ScopeFunction}).Draw(t, "scope")
		draw := func(spec *v1alpha1.LockSpec) {
			spec.Owner = "token-" + texts.Draw(t, "owner")
			spec.HolderRef, spec.ReleaseDelay = refs.Draw(t, "holderRef").DeepCopy(), delays.Draw(t, "releaseDelay")
		}

		request := Acquisition{Scope: scope, Key: texts.Draw(t, "key"), Holder: "alice"}
		if scope == v1alpha1.ScopeFunction {
			request.Function = texts.Draw(t, "function")
		}
		var drawn v1alpha1.LockSpec
		draw(&drawn)
		request.Owner, request.HolderRef = drawn.Owner, drawn.HolderRef
		if drawn.ReleaseDelay != nil {
			request.ReleaseDelay = drawn.ReleaseDelay.Duration
		}
		if _, err := request.Validate(DefaultLimits()); err == nil {
			check(Grant("default", request, DefaultLimits(), noon))
		}

		submitted := manifest(func(l *v1alpha1.Lock) {
			l.Name, l.Spec.Scope, l.Spec.Key, l.Spec.Function = "", scope, request.Key, request.Function
			draw(&l.Spec)
		})
		stored, _, err := AdmitCreate(submitted, User{Name: "alice"}, DefaultLimits(), noon)
		if err != nil {
			return
		}
		check(stored)
		stored.ResourceVersion = "7"
		change := Change{Old: stored, Updated: stored.DeepCopy(), User: users.Draw(t, "user")}
		draw(&change.Updated.Spec)
		if rapid.Bool().Draw(t, "sameOwner") {
			change.Updated.Spec.Owner = stored.Spec.Owner
		}
		if asked := rapid.SampledFrom([]string{"", v1alpha1.RequestRenewal, v1alpha1.RequestHandOff}).Draw(t, "request"); asked != "" {
			metav1.SetMetaDataAnnotation(&change.Updated.ObjectMeta, v1alpha1.RequestAnnotation, asked)
		}
		now := noon.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "later"))
		if updated, _, err := AdmitUpdate(change, DefaultLimits(), now, time.Second); err == nil {
			check(updated)
		}
	})
}
