//go:build nightly

package upgrade_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("An installation that was upgraded", Label("nightly"), func() {
	It("is rolled back, and upgraded again at once, while clients use it", func(ctx context.Context) {
		used := install(ctx)
		By("restarting it, which is what the others are compared with")
		for _, component := range upgradeOrder {
			if component == webhook {
				used.rollEarlierWebhook(ctx, earlier, webhook)
			} else {
				used.roll(ctx, earlier, component)
			}
		}
		used.check(ctx)
		used.upgradeOneByOne(ctx)

		By("rolling it back, all components at once")
		used.apply(ctx, earlier)
		expectNoPolicy(ctx, used.renewed)
		used.check(ctx)
		used.roll(ctx, earlier, upgradeOrder...)
		used.check(ctx)
		changeSamples(ctx, used.storedIn, "after the rollback")
		expectEnd(ctx, used.renewed)

		By("upgrading it again, all components at once")
		used.apply(ctx, current)
		used.check(ctx)
		used.rollEarlierWebhook(ctx, current, upgradeOrder...)
		used.expectSharedLines(ctx)
		used.check(ctx)
		used.end(ctx)
	})
})

// expectNoPolicy waits until the API server drops what the schema of the earlier release does not have.
func expectNoPolicy(ctx context.Context, renewed *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		now := &v1alpha1.Lock{}
		g.Expect(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(renewed), now)).To(Succeed())
		g.Expect(now.Spec.RenewalPolicy).To(BeEmpty())
		g.Expect(now.Spec.RenewalEndTime).To(BeNil())
	}).WithContext(ctx).WithTimeout(processTimeout).Should(Succeed())
}

// expectEnd waits until the lock has expired, and the earlier release has deleted it.
func expectEnd(ctx context.Context, renewed *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) bool {
		return apierrors.IsNotFound(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(renewed), &v1alpha1.Lock{}))
	}).WithContext(ctx).WithTimeout(renewedTTL + processTimeout).Should(BeTrue())
}
