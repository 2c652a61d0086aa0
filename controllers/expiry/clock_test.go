package expiry_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A reaper with a clock of its own", func() {
	// soon is near enough for the reaper to say when it looks again, and has room for a slow machine. Clocks are wrong by far
	// more.
	const soon = 100 * time.Second
	var local *testenv.SteppedClock
	var live *countingReader
	var reaper *expiry.Reconciler

	reconcile := func(ctx context.Context, lock *v1alpha1.Lock) ctrl.Result {
		GinkgoHelper()
		result, err := reaper.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lock)})
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	exists := func(ctx context.Context, lock *v1alpha1.Lock) bool {
		GinkgoHelper()
		err := admin.Get(ctx, client.ObjectKeyFromObject(lock), &v1alpha1.Lock{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return err == nil
	}

	BeforeEach(func() {
		local = &testenv.SteppedClock{}
		now := servertime.New(local)
		config := rest.CopyConfig(environment.Config)
		config.Wrap(now.RoundTripper)
		reader, err := client.New(config, client.Options{Scheme: environment.Scheme})
		Expect(err).NotTo(HaveOccurred())
		live = &countingReader{Reader: reader}
		reaper = &expiry.Reconciler{
			Client: admin, LiveReader: live, Clock: now, Leadership: leadership.Always(),
			ClockSkewAllowance: time.Second,
		}
	})

	It("deletes no live lock after a step of an hour forward", func(ctx context.Context) {
		lock := held(ctx, "ahead", soon)
		for _, step := range []time.Duration{0, time.Hour, time.Hour} {
			local.Step(step)
			Eventually(func() time.Duration { return reconcile(ctx, lock).RequeueAfter }).
				Should(BeNumerically("~", soon, soon/2))
			Expect(exists(ctx, lock)).To(BeTrue(), "a lock that is held was deleted")
		}
	})

	It("deletes an expired lock after a step of an hour back", func(ctx context.Context) {
		lock := held(ctx, "behind", time.Millisecond)
		Expect(reconcile(ctx, lock).RequeueAfter).To(BeNumerically("<", 5*time.Second))
		local.Step(-time.Hour)
		Eventually(func() bool {
			Expect(reconcile(ctx, lock).RequeueAfter).To(BeNumerically("<", 5*time.Second))
			return exists(ctx, lock)
		}).WithPolling(100 * time.Millisecond).Should(BeFalse())
	})

	It("reads once for all locks that expire together", func(ctx context.Context) {
		local.Step(time.Hour)
		var together []*v1alpha1.Lock
		for _, key := range []string{"together-a", "together-b", "together-c"} {
			together = append(together, held(ctx, key, time.Millisecond))
		}
		for _, lock := range together {
			Eventually(func() bool {
				reconcile(ctx, lock)
				return exists(ctx, lock)
			}).WithPolling(100 * time.Millisecond).Should(BeFalse())
		}
		Expect(live.reads.Load()).To(BeEquivalentTo(1))
	})

	It("decides by the server's time that it has read", func(ctx context.Context) {
		stale := held(ctx, "read", time.Millisecond)
		renewed := stale.DeepCopy()
		expire := v1alpha1.NewTimestamp(time.Now().Add(soon))
		renewed.Spec.ExpireTime = &expire
		Expect(admin.Update(ctx, renewed)).To(Succeed())
		reaper.Client = staleClient{Client: admin, stale: stale}
		Eventually(func() time.Duration { return reconcile(ctx, stale).RequeueAfter }).
			Should(BeNumerically("~", soon, soon/2))
	})

	It("makes no read for a lock that was written just now", func(ctx context.Context) {
		lock := held(ctx, "just-written", time.Minute)
		reaper.Clock = servertime.New(clocktesting.NewFakeClock(lock.Spec.RenewTime.Time))
		Expect(reconcile(ctx, lock).RequeueAfter).To(BeNumerically("<=", time.Second))
		Expect(live.reads.Load()).To(BeZero())
	})
})

// countingReader counts the requests.
type countingReader struct {
	client.Reader
	reads atomic.Int32
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.reads.Add(1)
	// Decoding would keep what the answer does not have.
	Expect(object.GetUID()).To(BeEmpty(), "a live read over a lock from the cache")
	return r.Reader.Get(ctx, key, object, options...)
}
