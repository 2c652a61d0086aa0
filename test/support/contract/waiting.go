package contract

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeWaiting(s *subject) {
	It("does not wait for a lock that is free", func(ctx context.Context) {
		for _, patience := range []time.Duration{time.Nanosecond, time.Hour, lock.WaitForever} {
			s.acquired(ctx, by(alice, wait(patience)))
			Expect(s.release(ctx, alice)).To(Succeed())
		}
	})

	It("gives the lock to the waiters, first in, first out", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		var waiting []*caller
		for index := range 5 {
			waiting = append(waiting, s.queue(ctx, fmt.Sprint(secret, index)))
		}
		holder := alice
		for index, next := range waiting {
			Expect(next.returned).NotTo(Receive())
			Expect(s.release(ctx, holder)).To(Succeed())
			holder = next.granted().Spec.Owner
			Expect(holder).To(Equal(fmt.Sprint(secret, index)))
			s.expectHeldBy(ctx, holder)
		}
		Expect(s.release(ctx, holder)).To(Succeed())
		s.expectFree(ctx)
	})

	It("gives up when the wait is over, and names the holder", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		const bound = 2 * time.Second // The caller is in line by then.
		began := s.now()
		waiting := s.call(ctx, by(bob, wait(bound)))
		if s.Clock != nil {
			s.expectQueued(1)
			s.pass(began.Add(bound - 1))
			waiting.expectWaiting()
		}
		s.pass(began.Add(bound))
		result := waiting.outcome()
		expectRefusal(result.err, lock.ErrTimeout)
		s.expectHeldError(result.err, granted)
		Expect(s.now()).To(BeTemporally(">=", began.Add(bound)))

		By("granting it to no caller later")
		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
	})

	It("waits without bound until the lock is free", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		waiting := s.call(ctx, by(bob, wait(lock.WaitForever)))
		waiting.expectWaiting()
		Expect(s.release(ctx, alice)).To(Succeed())
		Expect(waiting.granted().Spec.Owner).To(Equal(bob))
	})

	It("hands off a lock that is released through another replica", func(ctx context.Context) {
		if s.Rival == nil {
			Skip("the fixture has no rival")
		}
		_, err := s.Rival.Acquire(ctx, s.Namespace, by(alice))
		Expect(err).NotTo(HaveOccurred())
		waiting := s.queue(ctx, bob)
		Expect(s.Rival.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: alice})).To(Succeed())
		Expect(waiting.granted().Spec.Owner).To(Equal(bob))
	})

	It("grants a waiter what it asked for", func(ctx context.Context) {
		held := s.acquired(ctx, by(alice, reasoned("hers")))
		waiting := s.call(ctx, by(bob, ttl(2*long), reasoned("his"), wait(patience)))
		waiting.expectWaiting()
		Expect(s.release(ctx, alice)).To(Succeed())
		granted := waiting.granted()
		Expect(granted.Spec.Reason).To(Equal("his"))
		Expect(granted.Spec.TTL.Duration).To(Equal(2 * long))
		Expect(granted.Spec.AcquireTime.Time).To(BeTemporally(">", held.Spec.AcquireTime.Time))
		Expect(granted.Spec.ExpireTime.Time).To(BeTemporally("==", granted.Spec.AcquireTime.Add(2*long)))
	})
}
