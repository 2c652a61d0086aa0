package contract

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func describeFencing(s *subject) {
	// stored returns the token that readers of the lock see.
	stored := func(ctx context.Context) int64 {
		GinkgoHelper()
		held, err := s.Backend.Get(ctx, s.Namespace, fullKey)
		Expect(err).NotTo(HaveOccurred())
		return token(held)
	}

	It("keeps the token of a grant through renewals", func(ctx context.Context) {
		granted := token(s.acquired(ctx, by(alice)))
		Expect(granted).To(BeNumerically(">", 0))
		Expect(stored(ctx)).To(Equal(granted))
		for range 3 {
			renewed, err := s.renew(ctx, alice, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(token(renewed)).To(Equal(granted))
			Expect(stored(ctx)).To(Equal(granted))
		}
	})

	It("keeps the token of a grant through edits of metadata", func(ctx context.Context) {
		if s.Label == nil {
			Skip("the backend stores no Lock objects")
		}
		granted := token(s.acquired(ctx, by(alice)))
		Expect(s.Label(ctx, fullKey)).To(Succeed())
		Expect(stored(ctx)).To(Equal(granted))
		renewed, err := s.renew(ctx, alice, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(token(renewed)).To(Equal(granted))
		Expect(s.Label(ctx, fullKey)).To(Succeed())
		Expect(stored(ctx)).To(Equal(granted))
		Expect(s.release(ctx, alice)).To(Succeed())
		s.expectFree(ctx)
	})

	It("gives each grant, hand-off and take-over a larger token", func(ctx context.Context) {
		last := int64(0)
		later := func(way string, next int64) {
			GinkgoHelper()
			Expect(next).To(BeNumerically(">", last), way)
			last = next
		}
		later("a free lock", token(s.acquired(ctx, by(alice))))
		Expect(s.release(ctx, alice)).To(Succeed())
		later("a lock that was released and deleted", token(s.acquired(ctx, by(alice))))

		waiting := s.queue(ctx, bob)
		Expect(s.release(ctx, alice)).To(Succeed())
		later("a hand-off", token(waiting.granted()))
		Expect(stored(ctx)).To(Equal(last))

		s.expire(ctx, bob)
		later("a take-over", token(s.acquired(ctx, by(carol))))
		Expect(stored(ctx)).To(Equal(last))

		Expect(s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")).To(Succeed())
		later("a lock that was released by force", token(s.acquired(ctx, by(alice))))
	})

	It("orders the grants of different keys, too", func(ctx context.Context) {
		first := s.acquired(ctx, by(alice, keyed("first")))
		second := s.acquired(ctx, by(alice, keyed("second")))
		Expect(token(second)).To(BeNumerically(">", token(first)))
	})
}
