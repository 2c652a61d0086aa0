package holders_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A lock with a releaseDelay", func() {
	const delay = 3 * time.Second
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	// ended waits until the end of the holder is on record.
	ended := func(ctx context.Context, lock *v1alpha1.Lock) *v1alpha1.Lock {
		GinkgoHelper()
		current := &v1alpha1.Lock{}
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(lock), current)).To(Succeed())
			g.Expect(current.Spec.HolderEndTime).NotTo(BeNil())
		}).Should(Succeed())
		return current
	}

	It("stays for that long after the end of its holder", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod), delayed(delay))
		Expect(lock.OwnerReferences).To(BeEmpty(), "the garbage collector would not wait")
		before := time.Now().Add(-time.Microsecond)
		remove(ctx, pod)
		recorded := ended(ctx, lock)
		Expect(recorded.Spec.HolderEndTime.Time).To(BeTemporally(">=", before))
		Expect(recorded.Spec.ExpireTime).To(Equal(lock.Spec.ExpireTime))
		token, err := recorded.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.FencingToken()).To(Equal(token))
		expectReleased(ctx, lock)
		Expect(time.Now()).To(BeTemporally(">=", recorded.Spec.HolderEndTime.Add(delay)))
		Eventually(notes(ctx, lock)).Should(ConsistOf(HaveSuffix("was deleted; the lock stays for 3s"), HavePrefix("Released the lock: Pod worker")))
	})

	It("keeps the annotations of users when the end of its holder is recorded", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod), delayed(time.Hour), func(l *v1alpha1.Lock) {
			l.Annotations = map[string]string{"example.com/ticket": "4711"}
		})
		remove(ctx, pod)
		Expect(ended(ctx, lock).Annotations).To(Equal(map[string]string{"example.com/ticket": "4711"}))
	})

	It("stays neither longer nor shorter after a restart of the operator", func(ctx context.Context) {
		stop := startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod), delayed(delay))
		remove(ctx, pod)
		recorded := ended(ctx, lock)
		stop()
		startOperator(ctx, nil)
		expectReleased(ctx, lock)
		Expect(time.Now()).To(BeTemporally(">=", recorded.Spec.HolderEndTime.Add(delay)))
	})

	It("has a holderEndTime that no caller can change", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod), delayed(time.Hour))
		at := v1alpha1.NewTimestamp(time.Now())
		lock.Spec.HolderEndTime = &at
		err := alice.Update(ctx, lock)
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		remove(ctx, pod)
		recorded := ended(ctx, lock)
		recorded.Spec.HolderEndTime = nil
		Expect(alice.Update(ctx, recorded)).To(Succeed())
		Expect(recorded.Spec.HolderEndTime).NotTo(BeNil())

		By("giving up the delay")
		recorded.Spec.ReleaseDelay = nil
		Expect(alice.Update(ctx, recorded)).To(Succeed())
		expectReleased(ctx, lock)
	})

	It("refuses a change of the delay to other callers", func(ctx context.Context) {
		lock := held(ctx, namespace, "report", podRef(running(ctx, namespace, "worker")), delayed(time.Hour))
		mallory := environment.Identity("mallory", testenv.TestersGroup).Client
		for _, change := range []func(*v1alpha1.Lock){delayed(0), func(l *v1alpha1.Lock) { l.Spec.ReleaseDelay = nil }} {
			changed := lock.DeepCopy()
			change(changed)
			Expect(mallory.Update(ctx, changed)).To(MatchError(ContainSubstring(`is held by "alice"`)))
		}
		Expect(stored(ctx, namespace, "report").Spec).To(Equal(lock.Spec))
	})

	DescribeTable("is refused", func(ctx context.Context, change func(*v1alpha1.Lock), want string) {
		err := alice.Create(ctx, manifest(namespace, "report", podRef(running(ctx, namespace, "worker")), change))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("below zero", delayed(-time.Second), "spec.releaseDelay"),
		Entry("above a day", delayed(25*time.Hour), "at most 24h"),
		Entry("without a holder", func(l *v1alpha1.Lock) { delayed(time.Second)(l); l.Spec.HolderRef = nil }, "needs a holderRef"),
	)
})
