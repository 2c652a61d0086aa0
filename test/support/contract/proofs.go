package contract

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describeLimitedProofs(s *subject) {
	// try renews and releases with a proof, and skips the spec if the backend does not know its limits.
	try := func(ctx context.Context, proof lock.Proof) (renewal, release error) {
		GinkgoHelper()
		_, renewal = s.Backend.Renew(ctx, s.Namespace, fullKey, proof, 0)
		if errors.Is(renewal, errors.ErrUnsupported) {
			expectRefusal(s.Backend.Release(ctx, s.Namespace, fullKey, proof), errors.ErrUnsupported)
			Skip("the backend does not know the limits of a proof")
		}
		return renewal, s.Backend.Release(ctx, s.Namespace, fullKey, proof)
	}
	refuses := func(ctx context.Context, proof lock.Proof, want error) {
		GinkgoHelper()
		renewal, release := try(ctx, proof)
		expectRefusal(renewal, want)
		expectRefusal(release, want)
		s.expectHeldBy(ctx, proof.Owner)
	}

	It("prove one grant of those under one owner token", func(ctx context.Context) {
		first := s.acquired(ctx, by(alice))
		Expect(s.release(ctx, alice)).To(Succeed())
		second := s.acquired(ctx, by(alice))
		refuses(ctx, lock.Proof{Owner: alice, FencingToken: token(first)}, lock.ErrNotHeld)
		_, err := s.renew(ctx, alice, 0)
		Expect(err).NotTo(HaveOccurred())
		renewal, release := try(ctx, lock.Proof{Owner: alice, FencingToken: token(second)})
		Expect(renewal).NotTo(HaveOccurred())
		Expect(release).NotTo(HaveOccurred())
		s.expectFree(ctx)
	})

	It("prove one version of the lock", func(ctx context.Context) {
		granted := s.acquired(ctx, by(alice))
		if granted.ResourceVersion == "" {
			Skip("the backend tells no versions")
		}
		proof := lock.Proof{Owner: alice, ResourceVersion: granted.ResourceVersion}
		renewed, err := s.Backend.Renew(ctx, s.Namespace, fullKey, proof, 2*long)
		if errors.Is(err, errors.ErrUnsupported) {
			Skip("the backend does not know the limits of a proof")
		}
		Expect(err).NotTo(HaveOccurred())
		refuses(ctx, proof, lock.ErrStale)
		refuses(ctx, lock.Proof{Owner: alice, ResourceVersion: "none"}, lock.ErrStale)
		Expect(s.Backend.Get(ctx, s.Namespace, fullKey)).To(HaveField("ResourceVersion", renewed.ResourceVersion))
		proof.ResourceVersion = renewed.ResourceVersion
		Expect(s.Backend.Release(ctx, s.Namespace, fullKey, proof)).To(Succeed())
		s.expectFree(ctx)
	})

	It("notice a write that is no renewal", func(ctx context.Context) {
		if s.Label == nil {
			Skip("the backend stores no Lock objects")
		}
		granted := s.acquired(ctx, by(alice))
		if granted.ResourceVersion == "" {
			Skip("the backend tells no versions")
		}
		Expect(s.Label(ctx, fullKey)).To(Succeed())
		refuses(ctx, lock.Proof{Owner: alice, ResourceVersion: granted.ResourceVersion}, lock.ErrStale)
	})
}
