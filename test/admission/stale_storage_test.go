package admission_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

var _ = Describe("A lock whose stored form is stale, as after a change of the schema", func() {
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/legacy"

	change := func(ctx context.Context, patch string) {
		GinkgoHelper()
		_, err := root.Kubectl.Run(ctx, "", "patch", "crd", "locks.forrst.dev", "--type=json", "-p", patch)
		Expect(err).NotTo(HaveOccurred())
	}
	// hasLegacy reports whether the API server knows the field of the lock.
	hasLegacy := func(ctx context.Context, lock *v1alpha1.Lock) bool {
		GinkgoHelper()
		var object unstructured.Unstructured
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Lock"))
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), &object)).To(Succeed())
		_, found, err := unstructured.NestedString(object.Object, "spec", "legacy")
		Expect(err).NotTo(HaveOccurred())
		return found
	}

	It("keeps its fencing token when an update that changes nothing is written", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		change(ctx, `[{"op":"add","path":"`+field+`","value":{"type":"string"}}]`)
		lock := fixture.Manifest(namespace, "billing:report")
		Eventually(func(g Gomega) {
			_, err := run(ctx, worker, namespace, yaml(namespace, "billing:report", "owner: token-a", "ttl: 1h", "legacy: old"), "create", "-f", "-")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(worker.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			if !hasLegacy(ctx, lock) {
				g.Expect(worker.Client.Delete(ctx, lock)).To(Succeed())
				g.Expect("legacy").To(BeNil(), "the schema is not in force yet")
			}
		}).WithPolling(200 * time.Millisecond).Should(Succeed())
		token, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		change(ctx, `[{"op":"remove","path":"`+field+`"}]`)
		Eventually(hasLegacy).WithArguments(ctx, lock).Should(BeFalse())

		// As the migration of stored objects does.
		Expect(root.Client.Update(ctx, stored(ctx, lock))).To(Succeed())
		written := stored(ctx, lock)
		Expect(written.ResourceVersion).NotTo(Equal(lock.ResourceVersion), "nothing was written, so the spec shows nothing")
		Expect(written.FencingToken()).To(Equal(token))

		Expect(root.Client.Update(ctx, written.DeepCopy())).To(Succeed())
		expectUntouched(ctx, written)
	})
})
