package webhook_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("Changing a Lock", func() {
	It("records the token before a label moves the resourceVersion", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("labelled"))
		granted, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		for range 3 {
			_, err := bobKubectl.Run(ctx, "", "label", "lock", "labelled", "--overwrite", "at="+time.Now().Format("150405.000000"))
			Expect(err).NotTo(HaveOccurred())
			Expect(alice.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			Expect(lock.FencingToken()).To(Equal(granted))
		}
		Expect(lock.Spec.FencingToken).To(HaveValue(Equal(granted)))
	})

	It("records the token before the same ttl is written in other words", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("respelt"))
		granted, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{"60m", "3600s"} {
			_, err := bobKubectl.Run(ctx, "", "patch", "lock", "respelt", "--type=merge", "-p", `{"spec":{"ttl":"`+text+`"}}`)
			Expect(err).NotTo(HaveOccurred())
			Expect(alice.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			Expect(lock.FencingToken()).To(Equal(granted))
		}
	})

	It("refuses an object that was read long ago as a conflict, not as forged", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("stale"))
		old := lock.DeepCopy()
		ttl(2 * time.Hour)(lock)
		Expect(alice.Update(ctx, lock)).To(Succeed())
		old.Labels = map[string]string{"a": "b"}
		err := alice.Update(ctx, old)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
	})

	It("lets every user change labels that the holder has applied", func(ctx context.Context) {
		labelled := strings.Replace(lockYAML("labels", "owner: gitops"), "metadata:\n", "metadata:\n  labels: {team: a}\n", 1)
		_, err := aliceKubectl.Run(ctx, labelled, "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "labels")
		_, err = bobKubectl.Run(ctx, "", "label", "lock", "labels", "--overwrite", "team=b")
		Expect(err).NotTo(HaveOccurred())
	})

	// Without managed fields, the API server lists as updated what was there before an apply.
	DescribeTable("refuses the manifest of a held lock, applied by force, after another user has removed the managed fields,",
		func(ctx context.Context, apply ...string) {
			lock := created(ctx, alice, manifest("unmanaged"))
			_, err := bobKubectl.Run(ctx, "", "patch", "lock", "unmanaged", "--type=merge", "-p", `{"metadata":{"managedFields":[{}]}}`)
			Expect(err).NotTo(HaveOccurred())
			Expect(alice.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			Expect(lock.ManagedFields).To(BeEmpty())

			for _, more := range []string{"", "ttl: 1h0m0s", "owner: " + lock.Spec.Owner} {
				_, err = bobKubectl.Run(ctx, lockYAML("unmanaged", more), append(apply, "-f", "-")...)
				Expect(err).To(MatchError(ContainSubstring(`is held by "alice" until `+lock.Spec.ExpireTime.String())), more)
			}
			_, err = bobKubectl.Run(ctx, "", "label", "lock", "unmanaged", "team=a")
			Expect(err).NotTo(HaveOccurred(), "labels are no claim")
			_, err = aliceKubectl.Run(ctx, lockYAML("unmanaged", ""), append(apply, "-f", "-")...)
			Expect(err).NotTo(HaveOccurred(), "the holder may apply it")
		},
		Entry("on the client's side", "apply", "--force"),
		Entry("on the server's side", "apply", "--server-side", "--force-conflicts"),
		Entry("on the server's side, without force", "apply", "--server-side"),
		Entry("under the name for what was there before", "apply", "--server-side", "--force-conflicts", "--field-manager=before-first-apply"),
	)

	It("refuses the manifest of a held lock with other labels, applied under the holder's manager", func(ctx context.Context) {
		apply := []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}
		_, err := aliceKubectl.Run(ctx, lockYAML("relabelled", "owner: gitops"), apply...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "relabelled")
		labelled := strings.Replace(lockYAML("relabelled", "owner: gitops"), "metadata:\n", "metadata:\n  labels: {team: a}\n", 1)
		_, err = bobKubectl.Run(ctx, labelled, apply...)
		Expect(err).To(MatchError(ContainSubstring(`is held by "alice" until `)))
		_, err = aliceKubectl.Run(ctx, labelled, apply...)
		Expect(err).NotTo(HaveOccurred())
	})

	It("refuses the manifest of a former holder, who applies it again after a take-over that kept its managed fields", func(ctx context.Context) {
		apply := []string{"apply", "--server-side", "-f", "-"}
		manifest := lockYAML("reapplied", "ttl: 1h0m0s")
		_, err := bobKubectl.Run(ctx, manifest, apply...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "reapplied")
		var lock v1alpha1.Lock
		Expect(operator.Get(ctx, client.ObjectKey{Namespace: "default", Name: "reapplied"}, &lock)).To(Succeed())
		lock.Spec.Holder, lock.Spec.Owner, lock.Spec.AcquireTime = "alice", "token-a", new(v1alpha1.NewTimestamp(time.Now()))
		Expect(operator.Update(ctx, &lock)).To(Succeed(), "as the façade takes over in place")
		for _, manager := range []string{"kubectl", "other"} {
			_, err = bobKubectl.Run(ctx, manifest, append(apply, "--field-manager="+manager)...)
			Expect(err).To(MatchError(ContainSubstring(`is held by "alice" until `)), manager)
		}
		_, err = bobKubectl.Run(ctx, "", "label", "lock", "reapplied", "team=a")
		Expect(err).NotTo(HaveOccurred(), "labels are no claim")
	})

	It("lets no other user plant managed fields as applied, by which applying them would change nothing", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("planted"))
		entry := func(manager, operation, field string) string {
			return `{"manager":"` + manager + `","operation":"` + operation + `","apiVersion":"forrst.dev/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"` + field + `":{}}}}`
		}
		planted := `{"metadata":{"managedFields":[` + entry("kubectl", "Apply", "f:key") + `,` + entry("bob", "Update", "f:ttl") + `]}}`
		_, err := bobKubectl.Run(ctx, "", "patch", "lock", "planted", "--type=merge", "-p", planted)
		Expect(err).To(MatchError(ContainSubstring(`is held by "alice" until ` + lock.Spec.ExpireTime.String())))
	})

	It("renews when the holder changes ttl", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("renewed"))
		before := lock.DeepCopy()
		ttl(2 * time.Hour)(lock)
		Expect(alice.Update(ctx, lock)).To(Succeed())
		Expect(lock.Spec.AcquireTime.Time).To(BeTemporally("==", before.Spec.AcquireTime.Time))
		Expect(lock.Spec.RenewTime.Time).To(BeTemporally(">", before.Spec.RenewTime.Time))
		Expect(lock.Spec.ExpireTime.Time).To(BeTemporally("==", lock.Spec.RenewTime.Add(2*time.Hour)))
	})

	DescribeTable("refuses",
		func(ctx context.Context, as func() client.Client, change func(*v1alpha1.Lock), is func(error) bool, message string) {
			lock := created(ctx, alice, manifest("guarded"))
			change(lock)
			err := as().Update(ctx, lock)
			Expect(is(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("a ttl by another user", asBob, ttl(2*time.Hour), isRefusedAsHeld, `is held by "alice" until`),
		Entry("an owner by another user", asBob, func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }, isRefusedAsHeld, `is held by "alice" until`),
		Entry("a new owner by the holder", asAlice, func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }, isRefusedAsHeld, "it is yours under another owner token"),
		Entry("a foreign holder", asBob, func(l *v1alpha1.Lock) { l.Spec.Holder = "bob" }, apierrors.IsBadRequest, "spec.holder"),
		Entry("an earlier renewTime", asAlice, func(l *v1alpha1.Lock) { *l.Spec.RenewTime = v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)) }, apierrors.IsBadRequest, "spec.renewTime"),
		Entry("another token", asAlice, func(l *v1alpha1.Lock) { l.Spec.FencingToken = new(int64(1)) }, apierrors.IsBadRequest, "spec.fencingToken"),
		Entry("another key", asAlice, func(l *v1alpha1.Lock) { l.Spec.Key = "other" }, apierrors.IsBadRequest, "spec.key: Forbidden: cannot change"),
		Entry("another scope", asAlice, func(l *v1alpha1.Lock) { l.Spec.Scope, l.Spec.Function = v1alpha1.ScopeFunction, "f" }, apierrors.IsBadRequest, "spec.scope: Forbidden: cannot change"),
		Entry("a finalizer", asAlice, func(l *v1alpha1.Lock) { l.Finalizers = []string{"example.com/keep"} }, apierrors.IsBadRequest, "metadata.finalizers"),
		Entry("an owner reference by another user", asBob, func(l *v1alpha1.Lock) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "gone", UID: "gone"}}
		}, apierrors.IsBadRequest, "metadata.ownerReferences"),
		Entry("a ttl over the maximum", asAlice, ttl(25*time.Hour), apierrors.IsBadRequest, "at most 24h"),
	)

	It("gives an expired lock to the user who changes its owner", func(ctx context.Context) {
		lock := expired(ctx, "taken-over")
		before, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		lock.Spec.Owner, lock.Spec.TTL = "token-b", &v1alpha1.Duration{Duration: time.Hour}
		Expect(bob.Update(ctx, lock)).To(Succeed())
		Expect(lock.Spec.Holder).To(Equal("bob"))
		Expect(lock.Spec.FencingToken).To(BeNil())
		Expect(lock.FencingToken()).To(BeNumerically(">", before))
		Expect(lock.Spec.ExpireTime.Time).To(BeTemporally(">", time.Now()))
	})
})

var _ = Describe("The operator", func() {
	It("is not asked by the webhook", func(ctx context.Context) {
		err := operator.Create(ctx, manifest("operator"))
		Expect(err).To(MatchError(ContainSubstring("are not stamped")), "the webhook would have stamped it")
	})
})

// This spec stops the webhook of the other specs, so it runs alone.
var _ = Describe("With the webhook down", Serial, func() {
	It("direct writes fail closed, and the schema still guards identity", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("away"))
		admissionServer.Stop()
		DeferCleanup(func(ctx context.Context) {
			admissionServer.Start(ctx)
			awaitDeletionAudit(ctx)
		})

		Expect(alice.Create(ctx, manifest("closed"))).To(MatchError(ContainSubstring("failed calling webhook")))
		lock.Spec.Key = "other"
		Expect(operator.Update(ctx, lock)).To(MatchError(ContainSubstring("key is immutable")))
		Expect(operator.Delete(ctx, lock)).To(Succeed())
	})
})

func asAlice() client.Client { return alice }
func asBob() client.Client   { return bob }

// isRefusedAsHeld distinguishes the refusal from a conflict, which clients repeat, and from a
// missing right.
func isRefusedAsHeld(err error) bool {
	return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld)
}
