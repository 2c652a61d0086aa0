package admission_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// What the schema of the Lock enforces by itself: the webhook leaves out what the operator writes.
var _ = Describe("Creating a Lock", func() {
	DescribeTable("is refused",
		func(ctx context.Context, change func(spec map[string]any), message string) {
			err := operator.Client.Create(ctx, raw(stamped("refused"), change))
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("without a key", set("key", nil), "spec.key: Required value"),
		Entry("with an empty key", set("key", ""), "spec.key"),
		Entry("with a key of 513 bytes", set("key", strings.Repeat("k", 513)), "spec.key: Too long"),
		Entry("with a line feed in the key", set("key", "a\nb"), "spec.key in body should match"),
		Entry("with a line feed at the end of the key", set("key", "a\n"), "spec.key in body should match"),
		Entry("with a control character beyond ASCII", set("key", "a\u0085"), "spec.key in body should match"),
		Entry("with a control character in the function", func(spec map[string]any) { spec["scope"], spec["function"] = "Function", "f\x00" },
			"spec.function in body should match"),
		Entry("with a space at the end of the key", set("key", "a "), "spec.key in body should match"),
		Entry("with a no-break space at the beginning of the key", set("key", "\u00a0a"), "spec.key in body should match"),
		Entry("with an invisible character in the key", set("key", "a\u200bb"), "spec.key in body should match"),
		Entry("with an invisible character in the function", func(spec map[string]any) { spec["scope"], spec["function"] = "Function", "f\U000E0041" },
			"spec.function in body should match"),
		Entry("with a scope that does not exist", set("scope", "Galaxy"), `spec.scope: Unsupported value: "Galaxy"`),
		Entry("with scope Function and an empty function", func(spec map[string]any) { spec["scope"], spec["function"] = "Function", "" },
			"function must be set when scope is Function"),
		Entry("with scope Function and no function", set("scope", "Function"), "function must be set when scope is Function"),
		Entry("with a function and scope Global", set("function", "f"), "must be empty when scope is Global"),
		Entry("with a ttl of zero", set("ttl", "0s"), "ttl must be a duration with units of at least 1ms and at most 24h"),
		Entry("with a negative ttl", set("ttl", "-5s"), "ttl must be a duration with units of at least 1ms and at most 24h"),
		Entry("with a ttl below a millisecond", set("ttl", "0.5ms"), "at least 1ms"),
		Entry("with a ttl over 24 hours", set("ttl", "24h1ms"), "ttl must be a duration with units of at least 1ms and at most 24h"),
		Entry("with a ttl that is not a duration", set("ttl", "soon"), "ttl must be a duration with units of at least 1ms and at most 24h"),
		Entry("with a ttl that overflows", set("ttl", "99999999999999999999h"), "spec.ttl"),
		Entry("with a ttl that is a number", set("ttl", int64(30)), "spec.ttl"),
		Entry("with an empty owner", set("owner", ""), "spec.owner"),
		Entry("with a reason of 1025 characters", set("reason", strings.Repeat("r", 1025)), "spec.reason: Too long"),
		Entry("with a time that is not a timestamp", set("expireTime", "tomorrow"), "spec.expireTime"),
		Entry("with a time without zone", set("expireTime", "2099-12-24T00:00:00"), "spec.expireTime"),
		Entry("with a time with a comma", set("expireTime", "2099-12-24T00:00:00,5Z"), "spec.expireTime in body should match"),
		Entry("with a stamp with a comma", set("holderEndTime", "2099-12-24T00:00:00,5Z"), "spec.holderEndTime in body should match"),
		Entry("with a time in a zone a day away", set("expireTime", "2099-12-24T00:00:00+24:00"), "spec.expireTime in body should match"),
		Entry("with an expiry before the renewal", set("expireTime", "2020-01-01T00:00:00Z"), "expireTime must be later than renewTime"),
		Entry("with an expiry at the renewal", func(spec map[string]any) { spec["expireTime"] = spec["renewTime"] }, "expireTime must be later than renewTime"),
		Entry("without an owner", set("owner", nil), "are not stamped"),
		Entry("without a holder", set("holder", nil), "are not stamped"),
		Entry("without acquireTime", set("acquireTime", nil), "are not stamped"),
		Entry("without renewTime", set("renewTime", nil), "are not stamped"),
		Entry("without expireTime", set("expireTime", nil), "are not stamped"),
		Entry("with a fencing token of zero", set("fencingToken", int64(0)), "spec.fencingToken"),
		Entry("with a releaseDelay over 24 hours", set("releaseDelay", "25h"), "releaseDelay must be a duration with units of at most 24h"),
		Entry("with a negative releaseDelay", set("releaseDelay", "-5s"), "releaseDelay must be a duration with units of at most 24h"),
		Entry("with 17 guards", set("guards", slices.Repeat([]any{map[string]any{"resource": "configmaps", "name": "a"}}, 17)), "spec.guards: Too many"),
		Entry("with a guard without a resource", set("guards", []any{map[string]any{"name": "a"}}), "spec.guards[0].resource: Required value"),
		Entry("with a guard of all resources", set("guards", []any{map[string]any{"resource": "*", "name": "a"}}), "spec.guards[0].resource"),
		Entry("with a guard of a subresource", set("guards", []any{map[string]any{"resource": "deployments/scale", "name": "a"}}), "spec.guards[0].resource"),
		Entry("with a guard of a group that is none", set("guards", []any{map[string]any{"group": "apps/v1", "resource": "deployments", "name": "a"}}), "spec.guards[0].group"),
		Entry("with a guard without name and selector", set("guards", []any{map[string]any{"resource": "configmaps"}}), "set exactly one of name and selector"),
		Entry("with a guard of both", set("guards", []any{map[string]any{"resource": "configmaps", "name": "a", "selector": map[string]any{}}}), "set exactly one of name and selector"),
		Entry("with a holderUID that is too long", set("holderUID", strings.Repeat("u", 257)), "spec.holderUID: Too long"),
		Entry("with an incomplete holderRef", set("holderRef", map[string]any{"kind": "Pod"}), "spec.holderRef.uid: Required value"),
	)

	DescribeTable("succeeds",
		func(ctx context.Context, key string, change func(spec map[string]any)) {
			lock := raw(stamped(key), change)
			Expect(operator.Client.Create(ctx, lock)).To(Succeed())
			DeferCleanup(operator.Client.Delete, lock)
			var typed v1alpha1.Lock
			Expect(operator.Client.Get(ctx, client.ObjectKeyFromObject(lock), &typed)).To(Succeed())
			Expect(typed.Spec.Scope).NotTo(BeEmpty())
		},
		Entry("with a key of one byte", "a", unchanged),
		Entry("with a key of 512 bytes", strings.Repeat("k", 512), unchanged),
		Entry("with a key of several words", "several words, \u00fcber \u00a0 all", unchanged),
		Entry("with a ttl of 24 hours", "ttl-max", set("ttl", "24h")),
		Entry("with a compound ttl", "ttl-compound", set("ttl", "1h30m0.5s")),
		Entry("with a time without fraction", "no-fraction", set("expireTime", "2099-12-24T00:00:00Z")),
		Entry("with a time in another zone", "zone", set("expireTime", "2099-12-24T00:00:00.5+01:00")),
		Entry("without a scope, which means Global", "no-scope", set("scope", nil)),
		Entry("with 16 guards", "guards", set("guards", slices.Repeat([]any{map[string]any{"group": "apps", "resource": "deployments", "name": "a"}}, 16))),
		Entry("with a guard by an empty selector", "guard-all", set("guards", []any{map[string]any{"group": "", "resource": "configmaps", "selector": map[string]any{}}})),
		Entry("with an owner of any text", "owner", set("owner", "job-17 \u00fc \t")),
	)

	// One object that the operator could not decode would blind its cache to all.
	DescribeTable("stores no time that the operator cannot read",
		func(ctx context.Context, text string) {
			lock := raw(stamped("odd-time"), set("expireTime", text))
			if err := operator.Client.Create(ctx, lock); err != nil {
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
				return
			}
			DeferCleanup(operator.Client.Delete, lock)
			Expect(operator.Client.List(ctx, &v1alpha1.LockList{})).To(Succeed())
		},
		Entry(nil, "2099-12-24T00:00:60Z"), Entry(nil, "2099-12-24t00:00:00z"), Entry(nil, "2099-12-24 00:00:00Z"),
		Entry(nil, "2099-12-24T00:00:00.000-0700"), Entry(nil, "2099-12-24T00:00:00,5Z"), Entry(nil, "2099-12-24T24:00:00Z"),
		Entry(nil, "2099-12-24"), Entry(nil, "2099-12-24T00:00Z"), Entry(nil, "2099-02-30T00:00:00Z"),
		Entry(nil, "20991224T000000Z"), Entry(nil, "99999-12-24T00:00:00Z"), Entry(nil, "2099-12-24T00:00:00+25:00"),
	)

	DescribeTable("stores no ttl that the operator cannot read",
		func(ctx context.Context, text string) {
			lock := raw(stamped("odd-ttl"), set("ttl", text))
			if err := operator.Client.Create(ctx, lock); err != nil {
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
				return
			}
			DeferCleanup(operator.Client.Delete, lock)
			Expect(operator.Client.List(ctx, &v1alpha1.LockList{})).To(Succeed())
		},
		Entry(nil, "1d"), Entry(nil, "1"), Entry(nil, "1.5.5s"), Entry(nil, "PT5M"), Entry(nil, "5 m"), Entry(nil, "+5m"),
		Entry(nil, "1\u00b5s"), Entry(nil, "0.00000000000000000000000000000000000001h"), Entry(nil, ".5h"), Entry(nil, "5m\n"),
	)
})

// stays is what the schema says of fields that only a new grant changes.
const stays = "owner, fencingToken and holderUID never change while a grant lasts, and a new grant must not carry a fencingToken"

var _ = Describe("Changing a Lock", func() {
	var lock *v1alpha1.Lock

	BeforeEach(func(ctx context.Context) {
		lock = stamped("changed")
		lock.Spec.Scope, lock.Spec.Function = v1alpha1.ScopeFunction, "f"
		Expect(operator.Client.Create(ctx, lock)).To(Succeed())
		DeferCleanup(operator.Client.Delete, lock)
	})

	regrant := func(spec map[string]any) { spec["acquireTime"] = "2099-01-01T00:00:00.000000Z" }

	DescribeTable("is refused",
		func(ctx context.Context, change func(spec map[string]any), message string) {
			err := operator.Client.Update(ctx, raw(lock, change))
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("of key", set("key", "other"), "key is immutable; create another Lock for another key"),
		Entry("of scope", func(spec map[string]any) { spec["scope"] = "Global"; delete(spec, "function") }, "scope is immutable"),
		Entry("of function", set("function", "g"), "function is immutable"),
		Entry("of owner within a grant", set("owner", "token-b"), stays),
		Entry("of owner beside another spelling of acquireTime", func(spec map[string]any) {
			at, _ := spec["acquireTime"].(string)
			spec["acquireTime"], spec["owner"] = strings.TrimSuffix(at, "Z")+"+00:00", "token-b"
		}, stays),
		Entry("of acquireTime that is removed", set("acquireTime", nil), "are not stamped"),
		Entry("of the holder that is removed", set("holder", nil), "are not stamped"),
		Entry("that removes the function", set("function", nil), "function must be set when scope is Function"),
		Entry("of ttl beyond the bound", set("ttl", "25h"), "at most 24h"),
		Entry("that makes a new grant with an old fencing token", func(spec map[string]any) { regrant(spec); spec["fencingToken"] = int64(7) },
			stays),
	)

	It("keeps the fencing token of a grant once it is recorded", func(ctx context.Context) {
		recorded := raw(lock, set("fencingToken", int64(7)))
		Expect(operator.Client.Update(ctx, recorded)).To(Succeed())
		for _, change := range []func(map[string]any){set("fencingToken", int64(6)), set("fencingToken", int64(8)), set("fencingToken", nil)} {
			changed := recorded.DeepCopy()
			change(specOf(changed))
			Expect(operator.Client.Update(ctx, changed)).To(MatchError(Or(ContainSubstring("fencingToken never changes while a grant lasts"), ContainSubstring(stays))))
		}
	})

	// While replicas are upgraded, an earlier webhook does not know the field, and does not judge it.
	It("lets only a new grant set the UID of the holder, and any write drop it", func(ctx context.Context) {
		refused := MatchError(ContainSubstring(stays))
		Expect(operator.Client.Update(ctx, raw(lock, set("holderUID", "1")))).To(refused)
		next := raw(lock, func(spec map[string]any) { regrant(spec); spec["holderUID"] = "1" })
		specOf(next)["renewTime"] = "2099-01-01T00:00:00.000000Z"
		specOf(next)["expireTime"] = "2099-01-01T00:00:01.000000Z"
		Expect(operator.Client.Update(ctx, next)).To(Succeed())
		forged := next.DeepCopy()
		specOf(forged)["holderUID"] = "2"
		Expect(operator.Client.Update(ctx, forged)).To(refused)
		delete(specOf(next), "holderUID")
		Expect(operator.Client.Update(ctx, next)).To(Succeed())
		specOf(next)["holderUID"] = "1"
		Expect(operator.Client.Update(ctx, next)).To(refused)
	})

	It("allows a new grant to another owner", func(ctx context.Context) {
		next := raw(lock, func(spec map[string]any) { regrant(spec); spec["owner"] = "token-b" })
		specOf(next)["renewTime"] = "2099-01-01T00:00:00.000000Z"
		specOf(next)["expireTime"] = "2099-01-01T00:00:01.000000Z"
		Expect(operator.Client.Update(ctx, next)).To(Succeed())
	})
})

var _ = Describe("A Lock under a key that an earlier schema allowed", func() {
	const key, function = "deploy\u200b", "\u00a0f "
	var lock *v1alpha1.Lock

	BeforeEach(func(ctx context.Context) {
		restore := dropPatterns(ctx, "key", "function")
		lock = stamped(key)
		lock.Spec.Scope, lock.Spec.Function = v1alpha1.ScopeFunction, function
		lock.Name = lock.Spec.FullKey().ObjectName()
		Eventually(operator.Client.Create).WithArguments(ctx, lock).Should(Succeed())
		restore(ctx)
		Eventually(func(ctx context.Context) error {
			return operator.Client.Create(ctx, stamped("\u200b"), client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("spec.key in body should match")))
	})

	It("is renewed, handed on, marked and deleted", func(ctx context.Context) {
		later := v1alpha1.NewTimestamp(time.Now().Add(time.Hour))
		lock.Spec.RenewTime, lock.Spec.ExpireTime = &later, new(v1alpha1.NewTimestamp(later.Add(time.Hour)))
		Expect(operator.Client.Update(ctx, lock)).To(Succeed())
		lock.Spec.Owner, lock.Spec.AcquireTime = "token-b", &later
		Expect(operator.Client.Update(ctx, lock)).To(Succeed())
		before := lock.DeepCopy()
		lock.Labels, lock.Finalizers = map[string]string{"team": "shop"}, []string{"example.com/keep"}
		Expect(operator.Client.Patch(ctx, lock, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
		Expect(operator.Client.Delete(ctx, lock)).To(Succeed())
		Expect(operator.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
		lock.Finalizers = nil
		Expect(operator.Client.Update(ctx, lock)).To(Succeed())
		Expect(apierrors.IsNotFound(operator.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock))).To(BeTrue())
	})
})

// dropPatterns drops the patterns of fields of spec from the schema that is installed. Restore undoes that.
func dropPatterns(ctx context.Context, names ...string) (restore func(context.Context)) {
	GinkgoHelper()
	const fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/"
	patch := func(ctx context.Context, operation string, patterns map[string]string) {
		GinkgoHelper()
		var operations []map[string]string
		for _, name := range names {
			operations = append(operations, map[string]string{"op": operation, "path": fields + name + "/pattern", "value": patterns[name]})
		}
		text, err := json.Marshal(operations)
		Expect(err).NotTo(HaveOccurred())
		Expect(root.Client.Patch(ctx, definition(), client.RawPatch(types.JSONPatchType, text))).To(Succeed())
	}
	installed, patterns := definition(), map[string]string{}
	Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(installed), installed)).To(Succeed())
	versions, _, err := unstructured.NestedSlice(installed.Object, "spec", "versions")
	Expect(err).NotTo(HaveOccurred())
	for _, name := range names {
		version, _ := versions[0].(map[string]any)
		patterns[name], _, err = unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", name, "pattern")
		Expect(err).NotTo(HaveOccurred())
	}
	patch(ctx, "remove", nil)
	restore = func(ctx context.Context) {
		GinkgoHelper()
		patch(ctx, "add", patterns) // In place of a pattern, too.
	}
	DeferCleanup(restore)
	return restore
}

// definition names the CRD of Locks.
func definition() *unstructured.Unstructured {
	named := &unstructured.Unstructured{}
	named.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	named.SetName("locks.forrst.dev")
	return named
}

var _ = Describe("Looking at Locks", func() {
	It("selects by key, owner, scope and holder", func(ctx context.Context) {
		lock := stamped("selected:one")
		Expect(operator.Client.Create(ctx, lock)).To(Succeed())
		DeferCleanup(operator.Client.Delete, lock)
		for field, value := range map[string]string{"spec.key": "selected:one", "spec.owner": "token-a", "spec.scope": "Global", "spec.holder": "alice"} {
			var found, other v1alpha1.LockList
			Expect(operator.Client.List(ctx, &found, client.InNamespace("default"), client.MatchingFields{field: value})).To(Succeed())
			Expect(found.Items).To(HaveLen(1), field)
			Expect(operator.Client.List(ctx, &other, client.MatchingFields{field: "another"})).To(Succeed())
			Expect(other.Items).To(BeEmpty(), field)
		}
	})

	It("has a fencing token that grows over deletion and recreation", func(ctx context.Context) {
		var last int64
		for range 3 {
			lock := stamped("fenced")
			Expect(operator.Client.Create(ctx, lock)).To(Succeed())
			token, err := lock.FencingToken()
			Expect(err).NotTo(HaveOccurred())
			Expect(token).To(BeNumerically(">", last))
			last = token
			Expect(operator.Client.Delete(ctx, lock)).To(Succeed())
		}
	})

	It("explains ttl with unit, bounds, what unset means and whether it may change", func(ctx context.Context) {
		kubectl := root.Kubectl
		var text string
		// The aggregated OpenAPI document follows the CRD with a delay.
		Eventually(func(ctx context.Context) error {
			var err error
			text, err = kubectl.Run(ctx, "", "explain", "lock.spec.ttl")
			return err
		}).WithContext(ctx).WithTimeout(30 * time.Second).Should(Succeed())
		for _, word := range []string{"30s", "24h", "Unset means", "default", "may", "change"} {
			Expect(text).To(ContainSubstring(word))
		}
	})
})

// raw returns the lock as a client without our types would write it.
func raw(lock *v1alpha1.Lock, change func(spec map[string]any)) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(environment.Scheme.Convert(lock, object, nil)).To(Succeed())
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Lock"))
	object.SetCreationTimestamp(metav1.Time{})
	change(specOf(object))
	return object
}

func specOf(object *unstructured.Unstructured) map[string]any {
	GinkgoHelper()
	spec, ok := object.Object["spec"].(map[string]any)
	Expect(ok).To(BeTrue(), "the object has no spec")
	return spec
}

func unchanged(map[string]any) {}

func set(field string, value any) func(map[string]any) {
	return func(spec map[string]any) {
		if value == nil {
			delete(spec, field)
			return
		}
		spec[field] = value
	}
}

// stamped returns a lock as the operator writes it.
func stamped(key string) *v1alpha1.Lock {
	now := v1alpha1.NewTimestamp(time.Now())
	expire := v1alpha1.NewTimestamp(now.Add(time.Minute))
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec: v1alpha1.LockSpec{
			Key: key, Scope: v1alpha1.ScopeGlobal, Owner: "token-a", Holder: "alice", TTL: &v1alpha1.Duration{Duration: time.Minute},
			AcquireTime: &now, RenewTime: &now, ExpireTime: &expire,
		},
	}
}
