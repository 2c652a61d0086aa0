package e2e_test

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("An API server that goes away", func() {
	// Longer than the deadline for renewing a leader's Lease, and than the ttl that passes meanwhile.
	const outage = 12 * time.Second

	It("makes the façade unavailable, loses no lock, and needs no help when it returns", func(ctx context.Context) {
		Expect(shared.acquire(ctx, "outage:held", "job-17", 300)).To(beAcquired())
		Expect(shared.acquire(ctx, "outage:short", "job-17", 10)).To(beAcquired())
		operator, server := shared.process("lock-operator"), shared.process("kube-apiserver")

		DeferCleanup(signal, server, syscall.SIGCONT)
		Expect(testenv.Pause(server)).To(Succeed())
		back := time.After(outage)
		Expect(shared.acquire(ctx, "outage:tried", "job-17", 300)).To(failWith(503, "UNAVAILABLE"))
		Expect(shared.call(ctx, "status", map[string]any{"key": "outage:held"})).To(failWith(503, "UNAVAILABLE"))
		Eventually(back).WithTimeout(startTimeout).Should(Receive())
		signal(server, syscall.SIGCONT)

		Eventually(func(ctx context.Context) any {
			return shared.call(ctx, "status", map[string]any{"key": "outage:held"}).Result
		}).WithContext(ctx).WithTimeout(startTimeout).Should(And(HaveKeyWithValue("locked", true), HaveKeyWithValue("owner", "job-17")))
		Expect(shared.call(ctx, "release", map[string]any{"key": "outage:held", "owner": "job-17"}).Status).To(Equal(200))

		By("leaving no lock behind of a caller that was told that it has none")
		Eventually(func(ctx context.Context) any {
			return shared.call(ctx, "status", map[string]any{"key": "outage:tried"}).Result
		}).WithContext(ctx).WithTimeout(startTimeout).Should(HaveKeyWithValue("locked", false))

		By("reaping what expired meanwhile, in the process that was there before")
		Eventually(func(ctx context.Context) error {
			_, err := shared.kubectl.Run(ctx, "", "get", "lock", "outage--short")
			return err
		}).WithContext(ctx).WithTimeout(startTimeout).Should(MatchError(ContainSubstring("NotFound")))
		Expect(shared.process("lock-operator")).To(Equal(operator))
	})
})
