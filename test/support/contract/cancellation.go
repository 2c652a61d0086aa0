package contract

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeCancellation(s *subject) {
	cancelled := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}

	It("acquires nothing for a caller whose context has ended", func(ctx context.Context) {
		for _, request := range []lock.Request{by(alice), by(alice, wait(patience))} {
			_, err := s.acquire(cancelled(ctx), request)
			expectRefusal(err, context.Canceled)
			s.expectFree(ctx)
		}
	})

	It("neither renews nor reads for a caller whose context has ended", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		_, err := s.renew(cancelled(ctx), alice, 0)
		expectRefusal(err, context.Canceled)
		_, err = s.Backend.Get(cancelled(ctx), s.Namespace, fullKey)
		expectRefusal(err, context.Canceled)
		_, err = s.Backend.List(cancelled(ctx), s.Namespace, lock.Filter{})
		expectRefusal(err, context.Canceled)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("ResourceVersion", granted.ResourceVersion))
	})

	It("ends no lock by force for a caller whose context has ended", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		expectRefusal(s.Backend.ForceRelease(cancelled(ctx), s.Namespace, fullKey, "maintenance"), context.Canceled)
		s.expectHeldBy(ctx, alice)
	})

	It("ends a wait with its context, and grants the lock to the next one", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		first, second := s.queue(ctx, bob), s.queue(ctx, carol)
		first.cancel()
		expectRefusal(first.outcome().err, context.Canceled)
		second.expectWaiting()

		Expect(s.release(ctx, alice)).To(Succeed())
		Expect(second.granted().Spec.Owner).To(Equal(carol))
		Expect(s.release(ctx, carol)).To(Succeed())
		Consistently(s.look).WithContext(ctx).WithTimeout(quiet).WithPolling(poll).Should(MatchError(lock.ErrNotHeld))
	})

	It("tells key and holder when a context ends during a wait", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		limited, cancel := context.WithTimeout(ctx, 2*time.Second) // The wait has begun by then.
		defer cancel()
		_, err := s.acquire(limited, by(bob, wait(lock.WaitForever)))
		expectRefusal(err, context.DeadlineExceeded)
		Expect(err).NotTo(MatchError(lock.ErrHeld), "which a caller may try again")
		Expect(err).To(MatchError(And(ContainSubstring(string(fullKey)), ContainSubstring(s.Holder))))
		var interrupted *lock.InterruptedError
		Expect(errors.As(err, &interrupted)).To(BeTrue(), "%T wraps no InterruptedError", err)
		Expect(interrupted.Held).To(HaveOccurred())
		Expect(interrupted.Held.ExpireTime).To(BeTemporally("==", granted.Spec.ExpireTime.Time))
	})

	It("ends a wait without bound with its context", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		waiting := s.call(ctx, by(bob, wait(lock.WaitForever)))
		waiting.expectWaiting()
		waiting.cancel()
		expectRefusal(waiting.outcome().err, context.Canceled)
		s.expectHeldBy(ctx, alice)
		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
	})

	It("grants nothing to waiters that are cancelled in the moment of the release", func(ctx context.Context) {
		const rounds = 20
		for range rounds {
			// A write for the caller that has left may still be under way. The backend undoes it.
			s.acquired(ctx, by(alice, wait(soon)))
			leaving := s.queue(ctx, bob)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				leaving.cancel()
			}()
			Expect(s.release(ctx, alice)).To(Succeed())
			<-gone
			if result := leaving.outcome(); result.err == nil {
				Expect(s.release(ctx, bob)).To(Succeed())
			} else {
				expectRefusal(result.err, context.Canceled)
			}
			// The service ends a grant that came too late.
			Eventually(s.look).WithContext(ctx).WithTimeout(soon).WithPolling(poll).Should(MatchError(lock.ErrNotHeld))
		}
	})

	It("releases for a caller whose context has ended", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		Expect(s.release(cancelled(ctx), alice)).To(Or(Succeed(), MatchError(context.Canceled)))
		Eventually(s.look).WithContext(ctx).WithTimeout(soon).WithPolling(poll).Should(MatchError(lock.ErrNotHeld))
	})

	It("hands off a lock that is released by a caller whose context has ended", func(ctx context.Context) {
		s.acquired(ctx, by(alice))
		waiting := s.queue(ctx, bob)
		Expect(s.release(cancelled(ctx), alice)).To(Or(Succeed(), MatchError(context.Canceled)))
		Expect(waiting.granted().Spec.Owner).To(Equal(bob))
	})
}
