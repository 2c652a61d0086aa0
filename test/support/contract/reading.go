package contract

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeReading(s *subject) {
	// names returns the names of the listed locks.
	names := func(ctx context.Context, filter lock.Filter) []string {
		GinkgoHelper()
		listed, err := s.Backend.List(ctx, s.Namespace, filter)
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for index := range listed {
			names = append(names, listed[index].Name)
		}
		return names
	}

	It("gets the lock as it was granted, and as it was renewed", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice, reasoned("monthly close")))
		held, err := s.Backend.Get(ctx, s.Namespace, fullKey)
		Expect(err).NotTo(HaveOccurred())
		Expect(held.Spec).To(Equal(granted.Spec))
		Expect(held.ResourceVersion).To(Equal(granted.ResourceVersion))
		renewed, err := s.renew(ctx, alice, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("Spec", renewed.Spec))
	})

	It("reports a free lock as not held", func(ctx context.Context) {
		s.expectFree(ctx)
		_, err := s.Backend.Get(ctx, s.Namespace, "lock:")
		expectRefusal(err, lock.ErrNotHeld)
	})

	It("lists the held locks, ordered by name", func(ctx context.Context) {
		Expect(names(ctx, lock.Filter{})).To(BeEmpty())
		for _, key := range []string{"b", "a", "D", "c"} {
			s.acquired(ctx, by(alice, keyed(key)))
		}
		Expect(s.Backend.Release(ctx, s.Namespace, "lock:c", lock.Proof{Owner: alice})).To(Succeed())
		listed := names(ctx, lock.Filter{})
		Expect(listed).To(And(HaveLen(3), ContainElements("a", "b")))
		Expect(slices.IsSorted(listed)).To(BeTrue(), "%v", listed)
	})

	It("lists the locks held under an owner token", func(ctx context.Context) {
		s.acquired(ctx, by(alice, keyed("a")))
		s.acquired(ctx, by(bob, keyed("b")))
		s.acquired(ctx, by(alice, keyed("c")))
		Expect(names(ctx, lock.Filter{Owner: alice})).To(Equal([]string{"a", "c"}))
		Expect(names(ctx, lock.Filter{Owner: bob})).To(Equal([]string{"b"}))
		Expect(names(ctx, lock.Filter{Owner: carol})).To(BeEmpty())
	})

	It("finds a lock by an owner token full of punctuation", func(ctx context.Context) {
		owner := secret + `a=b,c\d !metadata.name=x ü`
		s.acquired(ctx, by(owner))
		Expect(names(ctx, lock.Filter{Owner: owner})).To(HaveLen(1))
	})
}
