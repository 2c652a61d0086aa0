package contract

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

func describeRequests(s *subject) {
	DescribeTable("grants a ttl of", func(ctx context.Context, asked, want time.Duration) {
		granted, err := s.acquire(ctx, by(alice, ttl(asked)))
		if want == time.Millisecond && errors.Is(err, lock.ErrInvalid) || want > time.Millisecond && want < long && errors.Is(err, lock.ErrUnavailable) {
			return // the answer took longer than the ttl
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(granted.Spec.TTL.Duration).To(Equal(want))
		Expect(granted.Spec.ExpireTime.Sub(granted.Spec.RenewTime.Time)).To(Equal(want))
	},
		Entry("a millisecond", time.Millisecond, time.Millisecond),
		Entry("a second and a half", 1500*time.Millisecond, 1500*time.Millisecond),
		Entry("24 hours", 24*time.Hour, 24*time.Hour),
		Entry("zero, which is the default", time.Duration(0), rules.DefaultLimits().DefaultTTL),
	)

	DescribeTable("refuses a ttl of", func(ctx context.Context, asked time.Duration) {
		_, err := s.acquire(ctx, by(alice, ttl(asked)))
		expectRefusal(err, lock.ErrInvalid)
		s.expectFree(ctx)
	},
		Entry("less than a millisecond", time.Millisecond-1),
		Entry("a negative number", -time.Second),
		Entry("more than 24 hours", 24*time.Hour+time.Millisecond),
	)

	It("refuses a negative wait", func(ctx context.Context) {
		_, err := s.acquire(ctx, by(alice, wait(-time.Second)))
		expectRefusal(err, lock.ErrInvalid)
		s.expectFree(ctx)
	})

	It("refuses an invalid request at once, with and without a wait", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		_, err := s.acquire(ctx, by(bob, wait(patience), ttl(25*time.Hour)))
		expectRefusal(err, lock.ErrInvalid)
	})

	It("refuses a reason of more than 1024 characters", func(ctx context.Context) {
		_, err := s.acquire(ctx, by(alice, reasoned(strings.Repeat("ü", 1025))))
		expectRefusal(err, lock.ErrInvalid)
		s.acquired(ctx, by(alice, reasoned(strings.Repeat("ü", 1024))))
	})

	It("makes a new owner token for each request without one", func(ctx context.Context) {
		first := s.acquired(ctx, by(""))
		second := s.acquired(ctx, by("", keyed("other")))
		Expect(first.Spec.Owner).NotTo(BeEmpty())
		Expect(second.Spec.Owner).NotTo(Equal(first.Spec.Owner))
		Expect(s.release(ctx, first.Spec.Owner)).To(Succeed())
	})

	It("grants no lock without an owner token to a waiter or over an expired lock", func(ctx context.Context) {
		s.expired(ctx)
		taken := s.acquired(ctx, by("", wait(patience)))
		Expect(taken.Spec.Owner).NotTo(Or(BeEmpty(), Equal(alice)))
		s.expectHeldBy(ctx, taken.Spec.Owner)
		waiting := s.queue(ctx, "")
		Expect(s.release(ctx, taken.Spec.Owner)).To(Succeed())
		handed := waiting.granted()
		Expect(handed.Spec.Owner).NotTo(Or(BeEmpty(), Equal(taken.Spec.Owner)))
		s.expectHeldBy(ctx, handed.Spec.Owner)
		Expect(s.release(ctx, handed.Spec.Owner)).To(Succeed())
	})

	It("accepts an owner token of 512 bytes", func(ctx context.Context) {
		owner := secret + strings.Repeat("ü", (v1alpha1.MaxOwnerBytes-len(secret))/2) + strings.Repeat("u", len(secret)%2)
		Expect(owner).To(HaveLen(v1alpha1.MaxOwnerBytes))
		Expect(s.acquired(ctx, by(owner)).Spec.Owner).To(Equal(owner))
		_, err := s.renew(ctx, owner, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.release(ctx, owner)).To(Succeed())
	})

	DescribeTable("refuses an owner token", func(ctx context.Context, owner string) {
		_, err := s.acquire(ctx, by(owner))
		expectRefusal(err, lock.ErrInvalid)
		s.expectFree(ctx)
	},
		Entry("of 513 bytes", secret+strings.Repeat("o", v1alpha1.MaxOwnerBytes+1-len(secret))),
		Entry("that is no UTF-8", secret+"\xff"),
	)
}
