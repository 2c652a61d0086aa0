package webhook_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("Changing a Lock", func() {
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
})

var _ = Describe("The operator", func() {
	It("is not asked by the webhook", func(ctx context.Context) {
		err := operator.Create(ctx, manifest("operator"))
		Expect(err).To(MatchError(ContainSubstring("are not stamped")), "the webhook would have stamped it")
	})
})
