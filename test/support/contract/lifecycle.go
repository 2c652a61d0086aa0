package contract

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func describeLifeCycle(s *subject) {
	It("acquires, renews and releases", func(ctx context.Context) {
		s.expectFree(ctx)
		began := s.now()
		granted := s.acquired(ctx, by(alice, reasoned("monthly close")))
		s.expectHeldBy(ctx, alice)
		_, err := s.acquire(ctx, by(bob))
		s.expectHeldError(err, granted)

		renewed, err := s.renew(ctx, alice, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(renewed.Spec.ExpireTime.Time).To(BeTemporally(">=", began.Add(long).Truncate(time.Microsecond)))

		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
		Expect(s.acquired(ctx, by(bob)).Spec.Owner).To(Equal(bob))
		s.expectHeldBy(ctx, bob)
	})

	It("stamps what it grants", func(ctx context.Context) {
		began := s.now().Truncate(time.Microsecond)
		granted := s.acquired(ctx, by(alice, reasoned("monthly close")))

		Expect(granted.Namespace).To(Equal(s.Namespace))
		Expect(granted.Name).To(Equal("billing--report"))
		spec := granted.Spec
		Expect(spec.Key).To(Equal(key))
		Expect(spec.Scope).To(Equal(v1alpha1.ScopeGlobal))
		Expect(spec.Function).To(BeEmpty())
		Expect(spec.Owner).To(Equal(alice))
		Expect(spec.Holder).To(Equal(s.Holder))
		Expect(spec.Reason).To(Equal("monthly close"))
		Expect(spec.TTL.Duration).To(Equal(long))
		Expect(spec.AcquireTime.Time).To(And(BeTemporally(">=", began), BeTemporally("<=", s.now().Add(time.Millisecond))))
		Expect(spec.RenewTime.Time).To(BeTemporally("==", spec.AcquireTime.Time))
		Expect(spec.ExpireTime.Time).To(BeTemporally("==", spec.RenewTime.Add(long)))
	})

	It("grants a released lock to a caller that does not wait", func(ctx context.Context) {
		for _, owner := range []string{alice, bob, carol, alice} {
			s.acquired(ctx, by(owner))
			Expect(s.release(ctx, owner)).To(Succeed())
		}
	})

	It("keeps the locks of keys apart", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		s.acquired(ctx, by(bob, keyed("billing:report:2")))
		s.expectHeldBy(ctx, alice)
	})

	It("keeps the locks of namespaces apart", func(ctx context.Context) {
		if s.Elsewhere == "" {
			Skip("the backend serves one namespace only")
		}
		s.acquired(ctx, by(alice))
		_, err := s.Backend.Get(ctx, s.Elsewhere, fullKey)
		expectRefusal(err, lock.ErrNotHeld)
		_, err = s.Backend.Acquire(ctx, s.Elsewhere, by(bob))
		Expect(err).NotTo(HaveOccurred())
		s.expectHeldBy(ctx, alice)
		expectRefusal(s.Backend.Release(ctx, s.Elsewhere, fullKey, lock.Proof{Owner: alice}), lock.ErrOwnerMismatch)
		Expect(s.Backend.List(ctx, s.Namespace, lock.Filter{})).To(HaveLen(1))
		Expect(s.Backend.Release(ctx, s.Elsewhere, fullKey, lock.Proof{Owner: bob})).To(Succeed())
		s.expectHeldBy(ctx, alice)
	})

	It("refuses a second acquisition under the same owner token", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.acquire(ctx, by(alice))
		s.expectHeldError(err, granted)
		s.expectHeldBy(ctx, alice)
	})

	It("leaves the record of the holder as it is when it refuses another", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.acquire(ctx, by(bob, ttl(time.Hour), reasoned("impatience")))
		expectRefusal(err, lock.ErrHeld)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("ResourceVersion", granted.ResourceVersion))
	})
}
