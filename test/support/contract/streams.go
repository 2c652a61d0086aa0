package contract

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func describeStreams(s *subject) {
	stream := func(ctx context.Context, namespace string, key v1alpha1.FullKey) lock.Stream {
		GinkgoHelper()
		streamer, ok := s.Backend.(lock.Streamer)
		if !ok {
			Skip("the backend has no streams")
		}
		begun, err := streamer.Stream(ctx, namespace, key)
		if errors.Is(err, errors.ErrUnsupported) {
			Skip("the backend cannot watch")
		}
		Expect(err).NotTo(HaveOccurred())
		return begun
	}
	// next returns the next state of any lock.
	next := func(begun lock.Stream) lock.Change {
		GinkgoHelper()
		var change lock.Change
		Eventually(begun.Changes).WithTimeout(soon).WithPolling(poll).Should(Receive(&change))
		return change
	}

	It("show every state of a lock, in order", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ofLock, ofNamespace := stream(ctx, s.Namespace, fullKey), stream(ctx, s.Namespace, "")
		Expect(ofLock.Present).To(BeEmpty())
		Expect(ofNamespace.Present).To(BeEmpty())
		versions := []string{s.acquired(ctx, by(alice)).ResourceVersion}
		for range 5 {
			renewed, err := s.renew(ctx, alice, 0)
			Expect(err).NotTo(HaveOccurred())
			versions = append(versions, renewed.ResourceVersion)
		}
		Expect(s.release(ctx, alice)).To(Succeed())
		for _, version := range versions {
			Expect(next(ofLock)).To(And(HaveField("IsGone", false), HaveField("Lock.ResourceVersion", version)))
			Expect(next(ofNamespace)).To(And(HaveField("IsGone", false), HaveField("Lock.ResourceVersion", version)))
		}
		Expect(next(ofLock)).To(HaveField("IsGone", true))
		Expect(next(ofNamespace)).To(HaveField("IsGone", true))
	})

	It("begin with what is there, and show what they are about", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		all := stream(ctx, s.Namespace, "")
		held := s.acquired(ctx, by(alice))
		next(all) // The backend has seen it.
		Expect(stream(ctx, s.Namespace, "").Present).To(HaveExactElements(HaveField("Name", held.Name)))
		ofOther := stream(ctx, s.Namespace, "lock:other")
		Expect(ofOther.Present).To(BeEmpty())
		s.acquired(ctx, by(alice, keyed("third")))
		other := s.acquired(ctx, by(alice, keyed("other")))
		Expect(next(ofOther)).To(HaveField("Lock.Name", other.Name))
		Expect(next(all)).To(HaveField("Lock.Spec.Key", "third"))
		Expect(next(all)).To(HaveField("Lock.Spec.Key", "other"))
		if s.Elsewhere != "" {
			Expect(stream(ctx, s.Elsewhere, "").Present).To(BeEmpty())
		}
	})

	It("end for a receiver that is too far behind, and with their contexts", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		begun := stream(ctx, s.Namespace, fullKey)
		s.acquired(ctx, by(alice))
		if s.Clock != nil { // Many writes take long elsewhere.
			for range lock.StreamBuffer + 1 {
				_, err := s.renew(ctx, alice, 0)
				Expect(err).NotTo(HaveOccurred())
			}
			Eventually(begun.Changes).WithTimeout(soon).Should(BeClosed())
			begun = stream(ctx, s.Namespace, fullKey)
		}
		cancel()
		Eventually(begun.Changes).WithTimeout(soon).WithPolling(poll).Should(BeClosed())
	})
}
