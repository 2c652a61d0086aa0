package contract

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func describeKeys(s *subject) {
	DescribeTable("refuses a key", func(ctx context.Context, key string) {
		_, err := s.acquire(ctx, by(alice, keyed(key)))
		expectRefusal(err, lock.ErrInvalidKey)
		Expect(err).To(MatchError(lock.ErrInvalid))
		_, err = s.acquire(ctx, by(alice, of("payments.charge", key)))
		expectRefusal(err, lock.ErrInvalidKey)
		Expect(s.Backend.List(ctx, s.Namespace, lock.Filter{})).To(BeEmpty())
	},
		Entry("that is empty", ""),
		Entry("of 513 bytes", strings.Repeat("k", v1alpha1.MaxKeyBytes+1)),
		Entry("with a tab", "billing\treport"),
		Entry("with a NUL", "billing\x00report"),
		Entry("with a line break", "billing\n"),
		Entry("with a control character of Latin-1", "billing\u0085report"),
		Entry("that is no UTF-8", "billing\xff"),
		Entry("with a space at the end", "billing "),
		Entry("with a space at the beginning", " billing"),
		Entry("with a no-break space at the end", "billing\u00a0"),
		Entry("with a zero width space", "bil\u200bling"),
		Entry("with a byte order mark", "\ufeffbilling"),
		Entry("with a variation selector", "billing\ufe0f"),
	)

	DescribeTable("refuses a function", func(ctx context.Context, function string) {
		_, err := s.acquire(ctx, by(alice, of(function, key)))
		expectRefusal(err, lock.ErrInvalidKey)
	},
		Entry("that is empty", ""),
		Entry("of 513 bytes", strings.Repeat("f", v1alpha1.MaxKeyBytes+1)),
		Entry("with a control character", "payments\x7fcharge"),
		Entry("with a space at the end", "payments.charge "),
		Entry("with a zero width space", "payments\u200b.charge"),
	)

	DescribeTable("acquires, renews, reads and releases a key", func(ctx context.Context, key string) {
		granted := s.acquired(ctx, by(alice, keyed(key)))
		fullKey := v1alpha1.FullKeyOf(key)
		Expect(granted.Name).To(Equal(fullKey.ObjectName()))
		_, err := s.acquire(ctx, by(bob, keyed(key)))
		expectRefusal(err, lock.ErrHeld)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("Spec.Key", v1alpha1.NormalizeKey(key)))
		_, err = s.Backend.Renew(ctx, s.Namespace, fullKey, lock.Proof{Owner: alice}, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Backend.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: alice})).To(Succeed())
	},
		Entry("of one byte", "k"),
		Entry("of 512 bytes", strings.Repeat("k", v1alpha1.MaxKeyBytes)),
		Entry("of 512 bytes in two-byte characters", strings.Repeat("ü", v1alpha1.MaxKeyBytes/2)),
		Entry("of 512 bytes after normalisation, and more before", strings.Repeat("u\u0308", v1alpha1.MaxKeyBytes/2)),
		Entry("in upper case, with spaces", "Billing Report"),
		Entry("of a letter with a mark that is shown", "r\u0331eport"),
		Entry("that looks like a path", "../a/b?c=d#e%2F&f"),
		Entry("with quotes", `"billing"\'report'`),
		Entry("of colons", ":::"),
		Entry("of dots", ".."),
	)

	It("treats NFC and NFD of a key as the same", func(ctx context.Context) {
		composed, decomposed := "caf\u00e9", "cafe\u0301"
		granted := s.acquired(ctx, by(alice, keyed(decomposed)))
		Expect(granted.Spec.Key).To(Equal(composed))
		_, err := s.acquire(ctx, by(bob, keyed(composed)))
		s.expectHeldError(err, granted)
		Expect(s.Backend.Release(ctx, s.Namespace, v1alpha1.FullKeyOf(decomposed), lock.Proof{Owner: alice})).To(Succeed())
		s.acquired(ctx, by(bob, keyed(composed)))
	})

	It("distinguishes upper case from lower case", func(ctx context.Context) {
		s.acquired(ctx, by(alice, keyed("Report")))
		s.acquired(ctx, by(bob, keyed("report")))
	})

	It("keeps a key apart for each function and for the scope Global", func(ctx context.Context) {
		s.acquired(ctx, by(alice, keyed("user")))
		granted := s.acquired(ctx, by(bob, of("payments.charge", "user")))
		s.acquired(ctx, by(carol, of("payments.refund", "user")))
		Expect(granted.Spec.Scope).To(Equal(v1alpha1.ScopeFunction))
		Expect(granted.Spec.Function).To(Equal("payments.charge"))
		Expect(s.Backend.Release(ctx, s.Namespace, "lock:payments.charge:user", lock.Proof{Owner: bob})).To(Succeed())
		Expect(s.Backend.Get(ctx, s.Namespace, "lock:user")).To(HaveField("Spec.Owner", alice))
		Expect(s.Backend.Get(ctx, s.Namespace, "lock:payments.refund:user")).To(HaveField("Spec.Owner", carol))
	})

	It("treats equal full keys as the same, in each spelling", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice, of("payments.charge", "user")))
		_, err := s.acquire(ctx, by(bob, keyed("payments.charge:user")))
		s.expectHeldError(err, granted)
		Expect(s.Backend.Release(ctx, s.Namespace, "lock:payments.charge:user", lock.Proof{Owner: alice})).To(Succeed())
		s.acquired(ctx, by(bob, keyed("payments.charge:user")))
	})

	It("refuses a function with the scope Global, and an unknown scope", func(ctx context.Context) {
		_, err := s.acquire(ctx, by(alice, func(r *lock.Request) { r.Function = "payments.charge" }))
		expectRefusal(err, lock.ErrInvalid)
		_, err = s.acquire(ctx, by(alice, func(r *lock.Request) { r.Scope = "Galaxy" }))
		expectRefusal(err, lock.ErrInvalid)
	})
}
