package contract

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/machine"
)

// describeSDK declares the specs of [lock.Client] on the backend.
func describeSDK(s *subject) {
	var client *lock.Client
	BeforeEach(func() {
		var options []lock.Option
		if s.Clock != nil {
			options = append(options, lock.WithClock(s.Clock))
		}
		client = lock.NewClient(s.Backend, s.Namespace, append(options, lock.WithTTL(long))...)
	})
	// hold acquires the lock. The lock is released after the spec at the latest.
	hold := func(ctx context.Context, options ...lock.Option) *lock.Held {
		GinkgoHelper()
		held, err := client.Acquire(ctx, key, options...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { _ = held.Release(ctx) })
		return held
	}
	expectEnd := func(held *lock.Held, reason error) {
		GinkgoHelper()
		Eventually(held.Done()).WithTimeout(soon).Should(BeClosed())
		expectRefusal(held.Err(), reason)
		Expect(held.Context().Err()).NotTo(Succeed())
	}

	// expectLoss is expectEnd for an end that the client learns of by a watch or by its next
	// renewal, for which the clock has to advance.
	expectLoss := func(held *lock.Held, reason types.GomegaMatcher) {
		GinkgoHelper()
		Eventually(func() error {
			if s.Clock != nil {
				s.Clock.Step(poll)
			}
			return held.Err()
		}).WithTimeout(soon).WithPolling(poll).ShouldNot(Succeed())
		Eventually(held.Done()).WithTimeout(soon).Should(BeClosed())
		Expect(held.Err()).To(reason)
	}

	It("holds a lock until it is released", func(ctx context.Context) {
		held := hold(ctx, lock.WithOwner(alice))
		Expect(held.Err()).To(Succeed())
		Expect(held.Key()).To(Equal(fullKey))
		Expect(held.Owns(ctx)).To(BeTrue())
		stored, err := s.Backend.Get(ctx, s.Namespace, fullKey)
		Expect(err).NotTo(HaveOccurred())
		Expect(held.FencingToken()).To(Equal(token(stored)))
		Expect(held.Deadline()).To(BeTemporally("<=", stored.Spec.ExpireTime.Time))

		Expect(held.Release(ctx)).To(Succeed())
		expectEnd(held, lock.ErrReleased)
		s.expectFree(ctx)
		Expect(held.Release(ctx)).To(Succeed(), "again")
	})

	It("tries without waiting, and names the holder", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := client.TryAcquire(ctx, key)
		s.expectHeldError(err, granted)
		Expect(s.release(ctx, alice)).To(Succeed())
		held, err := client.TryAcquire(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(held.Release(ctx)).To(Succeed())
	})

	It("waits for the time that the caller gives", func(ctx context.Context) {
		if s.Clock != nil {
			Skip("the clock does not run by itself")
		}
		granted := s.acquired(ctx, by(alice))
		_, err := client.Acquire(ctx, key, lock.WithWait(2*time.Second))
		expectRefusal(err, lock.ErrTimeout)
		s.expectHeldError(err, granted)
	})

	It("runs one function at a time under a lock", func(ctx context.Context) {
		shared := &guarded{}
		var callers sync.WaitGroup
		for range contenders {
			callers.Go(func() {
				defer GinkgoRecover()
				Expect(client.Do(ctx, key, func(_ context.Context, held *lock.Held) error {
					shared.enter(held.FencingToken())
					return nil
				})).To(Succeed())
			})
		}
		callers.Wait()
		shared.expect(contenders)
		s.expectFree(ctx)
	})

	It("releases when the function fails, and returns its error", func(ctx context.Context) {
		failure := errors.New("out of paper")
		Expect(client.Do(ctx, key, func(context.Context, *lock.Held) error { return failure })).To(BeIdenticalTo(failure))
		s.expectFree(ctx)
	})

	It("releases when the function panics", func(ctx context.Context) {
		Expect(func() {
			_ = client.Do(ctx, key, func(context.Context, *lock.Held) error { panic("out of paper") })
		}).To(PanicWith("out of paper"))
		s.expectFree(ctx)
	})

	It("releases when the caller is cancelled", func(ctx context.Context) {
		working, cancel := context.WithCancel(ctx)
		err := client.Do(working, key, func(ctx context.Context, _ *lock.Held) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		expectRefusal(err, context.Canceled)
		s.expectFree(ctx)
	})

	It("refuses a lock that the caller's context already holds", func(ctx context.Context) {
		held := hold(ctx)
		_, err := client.Acquire(held.Context(), key) // it descends from ctx
		expectRefusal(err, lock.ErrDoubleLock)
		Expect(err).To(MatchError(ContainSubstring(string(fullKey))))
		other, err := client.Acquire(held.Context(), "other") // it descends from ctx
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Release(ctx)).To(Succeed())
	})

	It("learns that the lock was ended by force", func(ctx context.Context) {
		held := hold(ctx, lock.WithTTL(roomy))
		Expect(s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")).To(Succeed())
		expectLoss(held, MatchError(lock.ErrForceReleased))
		Expect(held.Release(ctx)).To(MatchError(lock.ErrForceReleased))
	})

	It("learns that the lock has another holder", func(ctx context.Context) {
		held := hold(ctx, lock.WithTTL(roomy))
		Expect(s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")).To(Succeed())
		s.acquired(ctx, by(bob))
		// A watch may show the end before the next grant.
		expectLoss(held, Or(MatchError(lock.ErrTakenOver), MatchError(lock.ErrForceReleased)))
		Expect(held.Release(ctx)).To(MatchError(lock.ErrNotHeld))
		s.expectHeldBy(ctx, bob)
	})

	It("keeps a lock beyond its ttl", func(ctx context.Context) {
		if s.Clock != nil {
			Skip("a step of the clock leaves no time to renew")
		}
		held := hold(ctx, lock.WithTTL(roomy))
		s.pass(s.now().Add(roomy + brief))
		Expect(held.Err()).To(Succeed())
		_, err := s.acquire(ctx, by(bob))
		expectRefusal(err, lock.ErrHeld)
	})

	It("ends with the ttl if it is not renewed, never later than the service", func(ctx context.Context) {
		held := hold(ctx, lock.WithTTL(roomy), lock.WithoutRenewal())
		stored, err := s.Backend.Get(ctx, s.Namespace, fullKey)
		Expect(err).NotTo(HaveOccurred())
		s.pass(stored.Spec.ExpireTime.Time)
		expectRefusal(held.Err(), lock.ErrExpired)
		expectEnd(held, lock.ErrExpired)
		s.acquired(ctx, by(bob))
		Expect(held.Release(ctx)).To(MatchError(lock.ErrNotHeld))
		s.expectHeldBy(ctx, bob)
	})

	It("is not believed in on a machine that was suspended for longer than its ttl", func(ctx context.Context) {
		clock := machine.NewClock()
		held := hold(ctx, lock.WithClock(clock))
		Expect(held.Err()).To(Succeed())
		clock.Suspend(long)
		expectRefusal(held.Err(), lock.ErrUnavailable)
		expectEnd(held, lock.ErrUnavailable)
		Expect(held.Release(ctx)).To(MatchError(lock.ErrUnavailable))
		s.expectFree(ctx)
	})

	It("is renewed at once on a machine that was suspended for less than its ttl", func(ctx context.Context) {
		clock := machine.NewClock()
		held := hold(ctx, lock.WithClock(clock))
		before := held.Deadline()
		clock.Suspend(long / 2)
		Eventually(held.Deadline).WithTimeout(soon).WithPolling(poll).ShouldNot(Equal(before))
		Expect(held.Err()).To(Succeed())
		Expect(held.Release(ctx)).To(Succeed())
		s.expectFree(ctx)
	})

	It("renews on request", func(ctx context.Context) {
		held := hold(ctx, lock.WithoutRenewal())
		before := held.Deadline()
		Expect(held.Renew(ctx, 2*long)).To(Succeed())
		Expect(held.Deadline()).To(BeTemporally(">=", before.Add(long)))
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("Spec.TTL.Duration", 2*long))
	})

	DescribeTable("is not harmed by a renewal with a ttl", func(ctx context.Context, refused time.Duration) {
		held := hold(ctx, lock.WithoutRenewal())
		deadline := held.Deadline()
		for range 20 {
			expectRefusal(held.Renew(ctx, refused), lock.ErrInvalid)
			Expect(held.Err()).To(Succeed())
			Expect(held.Deadline()).To(Equal(deadline))
		}
		if s.Clock != nil {
			s.pass(deadline)
			expectRefusal(held.Err(), lock.ErrExpired)
		}
	},
		Entry("that is negative", -time.Second),
		Entry("that overflows when it is added", time.Duration(math.MinInt64)),
		Entry("of a nanosecond", time.Nanosecond),
		Entry("of less than a millisecond", time.Millisecond-1),
		Entry("of more than 24 hours", 24*time.Hour+time.Millisecond),
	)

	It("is taken up elsewhere after it was detached", func(ctx context.Context) {
		held := hold(ctx, lock.WithOwner(alice))
		proof := lock.Proof{Owner: held.Owner(), FencingToken: held.FencingToken()}
		Expect(held.Detach()).To(Succeed())
		expectEnd(held, lock.ErrDetached)
		Expect(held.Release(ctx)).To(Succeed(), "which does nothing")
		s.expectHeldBy(ctx, alice)

		elsewhere := client
		if s.Rival != nil {
			elsewhere = lock.NewClient(s.Rival, s.Namespace)
		}
		resumed, err := elsewhere.Resume(ctx, key, proof, lock.WithTTL(2*long))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { _ = resumed.Release(ctx) })
		Expect(resumed.FencingToken()).To(Equal(proof.FencingToken))
		Expect(resumed.Info().TTL).To(Equal(2 * long))
		Expect(resumed.Release(ctx)).To(Succeed())
		s.expectFree(ctx)
		_, err = elsewhere.Resume(ctx, key, proof)
		expectRefusal(err, lock.ErrNotHeld)
	})

	It("is not taken up, prolonged or released for another grant under its owner token", func(ctx context.Context) {
		first := token(s.acquired(ctx, by(alice)))
		Expect(s.release(ctx, alice)).To(Succeed())
		second := s.acquired(ctx, by(alice))
		late := lock.Proof{Owner: alice, FencingToken: first}
		_, err := client.Resume(ctx, key, late, lock.WithTTL(brief))
		expectRefusal(err, lock.ErrNotHeld)
		expectRefusal(client.Release(ctx, key, late), lock.ErrNotHeld)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("Spec.ExpireTime.Time", BeTemporally("==", second.Spec.ExpireTime.Time)))
	})

	It("is released by what proves it", func(ctx context.Context) {
		held := hold(ctx)
		Expect(held.Detach()).To(Succeed())
		expectRefusal(client.Release(ctx, key, lock.Proof{Owner: bob}), lock.ErrOwnerMismatch)
		Expect(client.Release(ctx, key, lock.Proof{Owner: held.Owner(), FencingToken: held.FencingToken()})).To(Succeed())
		s.expectFree(ctx)
	})

	It("locks a key of a function", func(ctx context.Context) {
		held := hold(ctx, lock.WithFunction("payments.charge"))
		Expect(held.Key()).To(BeEquivalentTo("lock:payments.charge:" + key))
		s.acquired(ctx, by(bob))
	})

	It("refuses an invalid key", func(ctx context.Context) {
		_, err := client.Acquire(ctx, "")
		expectRefusal(err, lock.ErrInvalidKey)
	})
}
