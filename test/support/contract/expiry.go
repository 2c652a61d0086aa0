package contract

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func describeExpiry(s *subject) {
	It("gives an expired lock to a caller that does not wait, and not earlier", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.acquire(ctx, by(bob))
		s.expectHeldError(err, granted)
		ended, _ := s.shorten(ctx, alice)
		if s.Clock != nil {
			s.pass(ended.Add(-time.Microsecond))
			_, err = s.acquire(ctx, by(bob))
			expectRefusal(err, lock.ErrHeld)
			s.pass(ended)
		}
		// The backend says from when on it gives the lock to others.
		var next *v1alpha1.Lock
		Eventually(func() error {
			next, err = s.acquire(ctx, by(bob))
			return err
		}).WithContext(ctx).WithTimeout(soon).WithPolling(poll).Should(Succeed())
		Expect(next.Spec.Owner).To(Equal(bob))
		Expect(next.Spec.AcquireTime.Time).To(BeTemporally(">=", ended))
		s.expectHeldBy(ctx, bob)
	})

	It("gives an expired lock to a waiter, and not earlier", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice, ttl(roomy)))
		waiting := s.queue(ctx, bob)
		s.pass(granted.Spec.ExpireTime.Time)
		next := waiting.granted()
		Expect(next.Spec.AcquireTime.Time).To(BeTemporally(">=", granted.Spec.ExpireTime.Time))
		s.expectHeldBy(ctx, bob)
	})

	It("waits for the end of a renewal, not of the first ttl", func(ctx context.Context) {
		s.acquired(ctx, by(alice, ttl(roomy)))
		waiting := s.queue(ctx, bob)
		renewed, err := s.renew(ctx, alice, roomy+brief)
		Expect(err).NotTo(HaveOccurred())
		s.pass(renewed.Spec.ExpireTime.Time)
		Expect(waiting.granted().Spec.AcquireTime.Time).To(BeTemporally(">=", renewed.Spec.ExpireTime.Time))
	})

	It("ends a lock with its last renewal if that is shorter", func(ctx context.Context) {
		s.acquired(ctx, by(alice, ttl(time.Hour)))
		waiting := s.queue(ctx, bob)
		ended := s.expire(ctx, alice)
		Expect(waiting.granted().Spec.AcquireTime.Time).To(BeTemporally(">=", ended))
	})

	It("neither renews, releases, force-releases nor shows an expired lock", func(ctx context.Context) {
		s.expired(ctx)
		_, err := s.renew(ctx, alice, 0)
		expectRefusal(err, lock.ErrExpired)
		_, err = s.renew(ctx, bob, 0)
		expectRefusal(err, lock.ErrNotHeld)
		Expect(err).NotTo(MatchError(lock.ErrExpired))
		expectRefusal(s.release(ctx, alice), lock.ErrExpired)
		expectRefusal(s.release(ctx, bob), lock.ErrNotHeld)
		expectRefusal(s.worded("force release of", s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")), lock.ErrNotHeld)
		s.expectFree(ctx)
		expectRefusal(s.look(ctx), lock.ErrExpired)
		Expect(s.Backend.List(ctx, s.Namespace, lock.Filter{})).To(BeEmpty())
	})

	It("protects the next holder from late calls of the former one", func(ctx context.Context) {
		s.expired(ctx)
		s.acquired(ctx, by(bob))
		_, err := s.renew(ctx, alice, 0)
		expectRefusal(err, lock.ErrOwnerMismatch)
		expectRefusal(s.release(ctx, alice), lock.ErrOwnerMismatch)
		s.expectHeldBy(ctx, bob)
	})

	It("gives an expired lock back to its owner as a new grant", func(ctx context.Context) {
		ended := s.expired(ctx)
		granted := s.acquired(ctx, by(alice))
		Expect(granted.Spec.AcquireTime.Time).To(BeTemporally(">=", ended.Spec.ExpireTime.Time))
		Expect(token(granted)).To(BeNumerically(">", token(ended)))
	})
}
