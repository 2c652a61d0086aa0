package expiry_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("An expired Lock", func() {
	gone := func(lock *v1alpha1.Lock) func(context.Context) bool {
		return func(ctx context.Context) bool {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(lock), &v1alpha1.Lock{}))
		}
	}

	It("is deleted, and not before it has expired", func(ctx context.Context) {
		startReaper(ctx, 0, nil)
		lock, live := held(ctx, "expires", time.Second), held(ctx, "lives", time.Hour)
		Eventually(gone(lock)).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(BeTrue())
		Expect(time.Now()).To(BeTemporally(">=", lock.Spec.ExpireTime.Time))
		Expect(gone(live)(ctx)).To(BeFalse())
	})

	It("is deleted by the leader", func(ctx context.Context) {
		first, second := candidate(), candidate()
		stopFirst := startReaper(ctx, 0, first)
		Eventually(first.IsLeader).Should(BeTrue())
		startReaper(ctx, 0, second)
		lock := held(ctx, "first-leader", 100*time.Millisecond)
		Eventually(gone(lock)).WithContext(ctx).Should(BeTrue())
		Expect(second.IsLeader()).To(BeFalse())

		// It passes the second replica by as an event, which must look again.
		early := held(ctx, "second-leader-early", 2*time.Second)
		stopFirst()
		Eventually(second.IsLeader).Should(BeTrue())
		Eventually(gone(early)).WithContext(ctx).Should(BeTrue())
		lock = held(ctx, "second-leader", 100*time.Millisecond)
		Eventually(gone(lock)).WithContext(ctx).Should(BeTrue())
	})
})
