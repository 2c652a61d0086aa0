package expiry_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
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

	It("is left alone for the clock skew allowance", func(ctx context.Context) {
		startReaper(ctx, time.Second, nil)
		lock := held(ctx, "skewed", 500*time.Millisecond)
		Eventually(gone(lock)).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(BeTrue())
		Expect(time.Now()).To(BeTemporally(">=", lock.Spec.ExpireTime.Add(time.Second)))
	})

	It("that was renewed lives until its new expiry", func(ctx context.Context) {
		startReaper(ctx, 0, nil)
		lock := held(ctx, "renewed", 8*time.Second) // The renewal must come first.
		expire := v1alpha1.NewTimestamp(lock.Spec.ExpireTime.Add(time.Second))
		lock.Spec.ExpireTime = &expire
		Expect(admin.Update(ctx, lock)).To(Succeed())
		Eventually(gone(lock)).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(BeTrue())
		Expect(time.Now()).To(BeTemporally(">=", expire.Time))
	})

	It("is deleted after a restart, though it expired meanwhile", func(ctx context.Context) {
		stop := startReaper(ctx, 0, nil)
		stop()
		lock := held(ctx, "restart", time.Millisecond)
		startReaper(ctx, 0, nil)
		Eventually(gone(lock)).WithContext(ctx).Should(BeTrue())
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

	It("is left to the replica that leads", func(ctx context.Context) {
		lock := held(ctx, "follower", time.Second)
		later := clocktesting.NewFakePassiveClock(lock.Spec.ExpireTime.Add(time.Second))
		reconciler := &expiry.Reconciler{Client: admin, Clock: later, Leadership: candidate()}
		Expect(reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lock)})).To(Equal(ctrl.Result{}))
		Expect(gone(lock)(ctx)).To(BeFalse())
	})

	// A cache that is behind shows the lock as it was: expired. In etcd it is not.
	DescribeTable("stays if it has expired only in a stale cache:", func(ctx context.Context, key string, meanwhile func(context.Context, *v1alpha1.Lock)) {
		stale := held(ctx, key, time.Second)
		meanwhile(ctx, stale.DeepCopy())
		later := clocktesting.NewFakePassiveClock(stale.Spec.ExpireTime.Add(time.Second))
		reconciler := &expiry.Reconciler{Client: staleClient{Client: admin, stale: stale}, Clock: later, Leadership: leadership.Always()}
		result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stale)})
		Expect(err).NotTo(HaveOccurred())
		Expect(result).To(Equal(ctrl.Result{}))
		Expect(gone(stale)(ctx)).To(BeFalse(), "a lock that is held was deleted")
	},
		Entry("it was renewed", "stale-renewed", func(ctx context.Context, lock *v1alpha1.Lock) {
			lock.Spec.TTL = &v1alpha1.Duration{Duration: time.Hour}
			Expect(admin.Update(ctx, lock)).To(Succeed())
		}),
		Entry("it was released and acquired again", "stale-reacquired", func(ctx context.Context, lock *v1alpha1.Lock) {
			Expect(admin.Delete(ctx, lock)).To(Succeed())
			held(ctx, "stale-reacquired", time.Hour)
		}),
	)

	It("that is already deleted is no error", func(ctx context.Context) {
		stale := held(ctx, "gone", time.Second)
		Expect(admin.Delete(ctx, stale)).To(Succeed())
		later := clocktesting.NewFakePassiveClock(stale.Spec.ExpireTime.Add(time.Second))
		reconciler := &expiry.Reconciler{Client: staleClient{Client: admin, stale: stale}, Clock: later, Leadership: leadership.Always()}
		Expect(reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stale)})).To(Equal(ctrl.Result{}))
	})
})

// staleClient reads one lock as it was.
type staleClient struct {
	client.Client
	stale *v1alpha1.Lock
}

func (c staleClient) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return fmt.Errorf("unexpected read of a %T", object)
	}
	c.stale.DeepCopyInto(lock)
	return nil
}
