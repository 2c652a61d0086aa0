package contract

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"forrst.dev/lock-operator/lock"
)

func describeRights(s *subject) {
	DescribeTable("refuse a caller without a right, and blame no outage:", func(ctx context.Context, call func(ctx context.Context, owner string) error) {
		expectRefusal(call(ctx, alice), lock.ErrForbidden) // A free lock.
		s.expectFree(ctx)
		s.acquired(ctx, by(alice))
		expectRefusal(call(ctx, alice), lock.ErrForbidden) // With the owner token, which is no right.
		expectRefusal(call(ctx, bob), lock.ErrForbidden)
		s.expectHeldBy(ctx, alice)
	},
		Entry("an acquire", func(ctx context.Context, owner string) error {
			_, err := s.Forbidden.Acquire(ctx, s.Namespace, by(owner))
			return err
		}),
		Entry("an acquire that would wait", func(ctx context.Context, owner string) error {
			_, err := s.Forbidden.Acquire(ctx, s.Namespace, by(owner, wait(patience)))
			return err
		}),
		Entry("a renewal", func(ctx context.Context, owner string) error {
			_, err := s.Forbidden.Renew(ctx, s.Namespace, fullKey, lock.Proof{Owner: owner}, long)
			return err
		}),
		Entry("a release", func(ctx context.Context, owner string) error {
			return s.Forbidden.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: owner})
		}),
		Entry("a forced release", func(ctx context.Context, _ string) error {
			return s.Forbidden.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")
		}),
		Entry("a read", func(ctx context.Context, _ string) error {
			_, err := s.Forbidden.Get(ctx, s.Namespace, fullKey)
			return err
		}),
		Entry("a list", func(ctx context.Context, _ string) error {
			_, err := s.Forbidden.List(ctx, s.Namespace, lock.Filter{})
			return err
		}),
	)

	It("are what the SDK tells of", func(ctx context.Context) {
		locks := lock.NewClient(s.Forbidden, s.Namespace)
		_, err := locks.TryAcquire(ctx, key)
		expectRefusal(err, lock.ErrForbidden)
		expectRefusal(locks.Do(ctx, key, func(context.Context, *lock.Held) error {
			Fail("the function ran")
			return nil
		}), lock.ErrForbidden)
		held := s.acquired(ctx, by(alice))
		_, err = locks.Resume(ctx, key, lock.Proof{Owner: held.Spec.Owner})
		expectRefusal(err, lock.ErrForbidden)
		_, err = locks.Owns(ctx, key, alice)
		expectRefusal(err, lock.ErrForbidden)
		s.expectHeldBy(ctx, alice)
	})
}
