package admission_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

const failedCalling = "failed calling webhook"

// The webhook of all other specs goes away meanwhile.
var _ = Describe("While the webhook is away", Serial, func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	takeAway := func() {
		GinkgoHelper()
		admission.Stop()
		DeferCleanup(admission.Start)
	}

	It("direct writes fail closed for every caller", func(ctx context.Context) {
		lock := held(ctx, namespace, "billing:report")
		takeAway()
		for _, who := range []fixture.Identity{worker, stranger, administrator, root} {
			Expect(who.Client.Create(ctx, fixture.Manifest(namespace, "other"))).To(MatchError(ContainSubstring(failedCalling)))
			_, err := run(ctx, who, namespace, "", "label", "lock", lock.Name, "a=b")
			Expect(err).To(MatchError(ContainSubstring(failedCalling)))
			_, err = run(ctx, who, namespace, "", "delete", "lock", lock.Name)
			Expect(err).To(MatchError(ContainSubstring(failedCalling)))
		}
		expectUntouched(ctx, lock)
	})

	It("the façade and the reaper go on", func(ctx context.Context) {
		locks, key := startFacade(ctx, namespace), v1alpha1.FullKeyOf("billing:report")
		takeAway()
		_, err := locks.Acquire(ctx, namespace, requestFor("billing:report"))
		Expect(err).NotTo(HaveOccurred())
		_, err = locks.Renew(ctx, namespace, key, lock.Proof{Owner: "facade-token"}, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(locks.Release(ctx, namespace, key, lock.Proof{Owner: "facade-token"})).To(Succeed())
		expectGone(ctx, fixture.Manifest(namespace, "billing:report"))

		brief := requestFor("brief")
		brief.TTL = time.Second
		_, err = locks.Acquire(ctx, namespace, brief)
		Expect(err).NotTo(HaveOccurred())
		Eventually(stored).WithContext(ctx).WithArguments(fixture.Manifest(namespace, "brief")).Should(BeNil())
	})

	It("namespaces are terminated and garbage is collected", func(ctx context.Context) {
		held(ctx, namespace, "live")
		other := newNamespace(ctx)
		owned, owner := ownedBy(ctx, other, "owned")
		foreground := held(ctx, other, "foreground")
		takeAway()

		Expect(root.Client.Delete(ctx, owner)).To(Succeed())
		// It leaves a finalizer, which the garbage collector takes off.
		Expect(operator.Client.Delete(ctx, foreground, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		expectTermination(ctx, namespace)
		expectCollected(ctx, owned)
		expectCollected(ctx, foreground)
	})
})
