package contract_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/contract"
	"forrst.dev/lock-operator/test/support/fixture"
)

// inLine returns the engine of a user that waits in the line of a façade, which grants access to that user.
func inLine(program, facade replica, namespace string, access access.Access) lock.Backend {
	GinkgoHelper()
	asking, ok := serve(facade, namespace, access).(*client.Client)
	Expect(ok).To(BeTrue())
	return client.InLine(program, asking)
}

var _ = contract.DescribeBackend("An engine in the line of a façade", func(ctx context.Context) contract.Fixture {
	const caller = fixture.SingleUser(directUser)
	namespace := newNamespace(ctx)
	before := served.waits.count()
	return contract.Fixture{
		Backend: inLine(direct, served, namespace, caller), Rival: inLine(directRival, servedRival, namespace, caller),
		Forbidden: inLine(directForbidden, served, namespace, noRights{fixture.SingleUser(forbiddenUser)}),
		Namespace: namespace,
		Holder:    directUser,
		Queued:    func(v1alpha1.FullKey) int { return served.waits.count() - before },
		Label:     label(namespace),
	}
})

var _ = Describe("A program with an engine of its own and callers of a façade", func() {
	It("stand in one line, in the order in which they came", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		program := lock.NewClient(inLine(direct, served, namespace, fixture.SingleUser(directUser)), namespace, lock.WithTTL(10*time.Minute))
		caller := lock.NewClient(serve(served, namespace, allowed), namespace, lock.WithTTL(10*time.Minute))
		first, err := caller.Acquire(ctx, "report")
		Expect(err).NotTo(HaveOccurred())

		const waiters = 9
		order, done := make(chan int, waiters), make(chan struct{}, waiters)
		before := served.waits.count()
		for waiter := range waiters {
			waiting := caller
			if waiter%2 == 1 {
				waiting = program
			}
			go func() {
				defer GinkgoRecover()
				held, err := waiting.Acquire(ctx, "report", lock.WithWait(time.Hour))
				Expect(err).NotTo(HaveOccurred())
				order <- waiter
				Expect(held.Renew(ctx, 0)).To(Succeed())
				Expect(held.Release(ctx)).To(Succeed())
				done <- struct{}{}
			}()
			Eventually(func() int { return served.waits.count() - before }).WithTimeout(answer).WithPolling(time.Millisecond).
				Should(BeNumerically(">", waiter))
		}
		Expect(first.Release(ctx)).To(Succeed())
		for waiter := range waiters {
			Eventually(order).WithTimeout(answer).Should(Receive(Equal(waiter)))
		}
		for range waiters {
			Eventually(done).WithTimeout(answer).Should(Receive())
		}
		_, err = program.Get(ctx, "report")
		Expect(err).To(MatchError(lock.ErrNotHeld))
	})
})
