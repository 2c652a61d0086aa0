package contract

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeRenewal(s *subject) {
	DescribeTable("replaces the remaining time, and does not add to it, by", func(ctx context.Context, asked, want time.Duration) {
		granted := s.acquired(ctx, by(alice))
		began := s.now().Truncate(time.Microsecond)
		renewed, err := s.renew(ctx, alice, asked)
		Expect(err).NotTo(HaveOccurred())
		Expect(renewed.Spec.TTL.Duration).To(Equal(want))
		Expect(renewed.Spec.RenewTime.Time).To(BeTemporally(">=", began))
		Expect(renewed.Spec.ExpireTime.Sub(renewed.Spec.RenewTime.Time)).To(Equal(want))
		Expect(renewed.Spec.AcquireTime.Time).To(BeTemporally("==", granted.Spec.AcquireTime.Time))
		Expect(renewed.Spec.Holder).To(Equal(granted.Spec.Holder))
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("Spec", renewed.Spec))
	},
		Entry("the same ttl", time.Duration(0), long),
		Entry("a longer one", time.Hour, time.Hour),
		Entry("a shorter one", long/2, long/2),
		Entry("the longest one", 24*time.Hour, 24*time.Hour),
	)

	It("keeps the ttl of the last renewal", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		_, err := s.renew(ctx, alice, 2*long)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.renew(ctx, alice, 0)).To(HaveField("Spec.TTL.Duration", 2*long))
	})

	It("renews just before the expiry", func(ctx context.Context) {
		margin := roomy / 2
		if s.Clock != nil {
			margin = time.Microsecond
		}
		granted := s.acquired(ctx, by(alice, ttl(roomy)))
		s.pass(granted.Spec.ExpireTime.Add(-margin))
		renewed, err := s.renew(ctx, alice, 0)
		Expect(err).NotTo(HaveOccurred())
		s.pass(granted.Spec.ExpireTime.Time)
		_, err = s.acquire(ctx, by(bob))
		s.expectHeldError(err, renewed)
	})

	It("renews many times in a row", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		for range 10 {
			_, err := s.renew(ctx, alice, 0)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
	})

	It("refuses the lock of another owner", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.renew(ctx, bob, 0)
		expectRefusal(err, lock.ErrOwnerMismatch)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("ResourceVersion", granted.ResourceVersion))
	})

	It("refuses a lock that is not held", func(ctx context.Context) {
		_, err := s.renew(ctx, alice, 0)
		expectRefusal(err, lock.ErrNotHeld)
		s.acquired(ctx, by(alice))
		Expect(s.release(ctx, alice)).To(Succeed())
		_, err = s.renew(ctx, alice, 0)
		expectRefusal(err, lock.ErrNotHeld)
		s.expectFree(ctx)
	})

	DescribeTable("refuses a ttl", func(ctx context.Context, asked time.Duration) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.renew(ctx, alice, asked)
		expectRefusal(err, lock.ErrInvalid)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("ResourceVersion", granted.ResourceVersion))
	},
		Entry("of more than 24 hours", 24*time.Hour+time.Millisecond),
		Entry("of less than a millisecond", time.Millisecond-1),
		Entry("that is negative", -time.Second),
	)

	It("works through another replica", func(ctx context.Context) {
		if s.Rival == nil {
			Skip("the fixture has no rival")
		}
		granted := s.acquired(ctx, by(alice))
		renewed, err := s.Rival.Renew(ctx, s.Namespace, fullKey, lock.Proof{Owner: alice}, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(token(renewed)).To(Equal(token(granted)))
		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
	})
}
