package contract

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func describeWatching(s *subject) {
	watch := func(ctx context.Context) <-chan lock.Change {
		GinkgoHelper()
		changes, err := s.Backend.Watch(ctx, s.Namespace, fullKey)
		if errors.Is(err, errors.ErrUnsupported) {
			Skip("the backend cannot watch")
		}
		Expect(err).NotTo(HaveOccurred())
		return changes
	}
	// expectIt receives until a state matches; the watch may skip earlier states.
	expectIt := func(changes <-chan lock.Change, state types.GomegaMatcher) {
		GinkgoHelper()
		Eventually(changes).WithTimeout(soon).WithPolling(poll).Should(Receive(state))
	}
	// held matches the state that a grant or a renewal has returned. A façade tells watchers no more of it.
	held := func(as *v1alpha1.Lock) types.GomegaMatcher {
		return And(HaveField("IsGone", false), WithTransform(func(change lock.Change) bool {
			return change.Lock.Spec.AcquireTime.Equal(as.Spec.AcquireTime) && change.Lock.Spec.RenewTime.Equal(as.Spec.RenewTime) &&
				token(change.Lock) == token(as)
		}, BeTrue()))
	}
	gone := HaveField("IsGone", true)

	It("begins with the present state", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		expectIt(watch(ctx), Equal(lock.Change{IsGone: true}))
		granted := s.acquired(ctx, by(alice))
		expectIt(watch(ctx), held(granted))
	})

	It("sends each state of the lock", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changes := watch(ctx)
		expectIt(changes, gone)
		expectIt(changes, held(s.acquired(ctx, by(alice))))
		renewed, err := s.renew(ctx, alice, 2*long)
		Expect(err).NotTo(HaveOccurred())
		expectIt(changes, held(renewed))
		Expect(s.release(ctx, alice)).To(Succeed())
		expectIt(changes, gone)
		expectIt(changes, held(s.acquired(ctx, by(bob))))
	})

	It("sends hand-offs, take-overs and forced releases", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		granted := s.acquired(ctx, by(alice))
		changes := watch(ctx)
		expectIt(changes, held(granted))
		waiting := s.queue(ctx, bob)
		Expect(s.release(ctx, alice)).To(Succeed())
		expectIt(changes, held(waiting.granted()))
		s.expire(ctx, bob)
		expectIt(changes, held(s.acquired(ctx, by(carol))))
		Expect(s.Backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")).To(Succeed())
		expectIt(changes, gone)
	})

	It("never loses the latest state for a slow receiver", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changes := watch(ctx)
		s.acquired(ctx, by(alice))
		var latest *v1alpha1.Lock
		for range 20 {
			renewed, err := s.renew(ctx, alice, 0)
			Expect(err).NotTo(HaveOccurred())
			latest = renewed
		}
		expectIt(changes, held(latest))
	})

	It("shows all watchers of a lock the same, and no other lock", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		first, second := watch(ctx), watch(ctx)
		expectIt(first, gone)
		expectIt(second, gone)
		s.acquired(ctx, by(bob, keyed("other")))
		granted := s.acquired(ctx, by(alice))
		expectIt(first, held(granted))
		expectIt(second, held(granted))
	})

	It("ends with its context", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		changes := watch(ctx)
		cancel()
		Eventually(changes).WithTimeout(soon).WithPolling(poll).Should(BeClosed())
	})
}
