package contract

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeRelease(s *subject) {
	It("refuses a second release", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		Expect(s.release(ctx, alice)).To(Succeed())
		expectRefusal(s.release(ctx, alice), lock.ErrNotHeld)
	})

	It("refuses a lock that was never acquired", func(ctx context.Context) {
		expectRefusal(s.release(ctx, alice), lock.ErrNotHeld)
		expectRefusal(s.Backend.Release(ctx, s.Namespace, "lock:", lock.Proof{Owner: alice}), lock.ErrNotHeld)
	})

	DescribeTable("refuses the lock of another owner, shown", func(ctx context.Context, shown string) {
		s.acquired(ctx, by(alice))
		expectRefusal(s.release(ctx, shown), lock.ErrOwnerMismatch)
		s.expectHeldBy(ctx, alice)
	},
		Entry("another token", bob),
		Entry("the beginning of the token", alice[:len(alice)-1]),
		Entry("the token and more", alice+"2"),
		Entry("the token in another case", "S"+alice[1:]),
	)

	It("does not end a lock that another caller has acquired meanwhile", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		Expect(s.release(ctx, alice)).To(Succeed())
		s.acquired(ctx, by(bob))
		expectRefusal(s.release(ctx, alice), lock.ErrOwnerMismatch)
		s.expectHeldBy(ctx, bob)
	})

	It("does not end a lock that a hand-off gave to another caller meanwhile", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		waiting := s.queue(ctx, bob)
		Expect(s.release(ctx, alice)).To(Succeed())
		waiting.granted()
		expectRefusal(s.release(ctx, alice), lock.ErrOwnerMismatch)
		_, err := s.renew(ctx, alice, 0)
		expectRefusal(err, lock.ErrOwnerMismatch)
		s.expectHeldBy(ctx, bob)
	})

	It("works through another replica", func(ctx context.Context) {
		if s.Rival == nil {
			Skip("the fixture has no rival")
		}
		s.acquired(ctx, by(alice))
		Expect(s.Rival.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: alice})).To(Succeed())
		s.expectFree(ctx)
		expectRefusal(s.release(ctx, alice), lock.ErrNotHeld)
	})

	Describe("by force", func() {
		force := func(ctx context.Context) error {
			GinkgoHelper()
			return s.worded("force release of", s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance"))
		}

		It("ends a lock without its owner token", func(ctx context.Context) {
			s.acquired(ctx, by(alice))
			Expect(force(ctx)).To(Succeed())
			s.expectFree(ctx)
			expectRefusal(s.release(ctx, alice), lock.ErrNotHeld)
			_, err := s.renew(ctx, alice, 0)
			expectRefusal(err, lock.ErrNotHeld)
		})

		It("refuses a lock that is not held", func(ctx context.Context) {
			expectRefusal(force(ctx), lock.ErrNotHeld)
			s.acquired(ctx, by(alice))
			Expect(force(ctx)).To(Succeed())
			expectRefusal(force(ctx), lock.ErrNotHeld)
		})

		It("gives the lock to a waiter", func(ctx context.Context) {
			s.acquired(ctx, by(alice))
			waiting := s.queue(ctx, bob)
			Expect(force(ctx)).To(Succeed())
			Expect(waiting.granted().Spec.Owner).To(Equal(bob))
			expectRefusal(s.release(ctx, alice), lock.ErrOwnerMismatch)
		})
	})
}
