package holders_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// Without a garbage collector, only the operator releases locks here.
var _ = Describe("A lock that is held for a Pod", func() {
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	DescribeTable("is released when the Pod", func(ctx context.Context, end func(context.Context, *corev1.Pod), how string) {
		startOperator(ctx, nil)
		pod, other := running(ctx, namespace, "worker"), running(ctx, namespace, "other")
		lock, kept := held(ctx, namespace, "report", podRef(pod)), held(ctx, namespace, "kept", podRef(other))
		Expect(lock.OwnerReferences).To(BeEmpty(), "the garbage collector could delete the lock of the next holder")
		expectHeld(ctx, lock)
		end(ctx, pod)
		expectReleased(ctx, lock)
		what := "Pod worker (UID " + string(pod.UID) + ") " + how
		Eventually(notes(ctx, lock)).Should(ConsistOf("Released the lock: " + what))
		Eventually(recorded(lock)).Should(HaveExactElements(And(
			HaveField("Event", audit.Released), HaveField("Reason", audit.HolderGone), HaveField("Message", what), HaveField("Unconfirmed", false))))
		Expect(exists(ctx, kept)()).To(BeTrue())
	},
		Entry("is deleted", func(ctx context.Context, pod *corev1.Pod) { remove(ctx, pod) }, "was deleted"),
		Entry("succeeds", func(ctx context.Context, pod *corev1.Pod) { setPhase(ctx, pod, corev1.PodSucceeded, "") }, "has succeeded"),
		Entry("fails", func(ctx context.Context, pod *corev1.Pod) { setPhase(ctx, pod, corev1.PodFailed, "") }, "has failed"),
		Entry("is evicted", func(ctx context.Context, pod *corev1.Pod) { setPhase(ctx, pod, corev1.PodFailed, "Evicted") }, "has failed: Evicted"),
	)

	It("stays while the Pod is shutting down", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		Expect(admin.Delete(ctx, pod, client.GracePeriodSeconds(600))).To(Succeed())
		expectHeld(ctx, lock)
		remove(ctx, pod)
		expectReleased(ctx, lock)
	})

	It("is left to another controller that releases it", func(ctx context.Context) {
		leftAlone := func(lock *v1alpha1.Lock) bool { return lock.Spec.Key == "gated" }
		startOperatorWith(ctx, nil, func(reconciler *holders.Reconciler) { reconciler.ReleasedElsewhere = leftAlone })
		pod := running(ctx, namespace, "worker")
		gated, lock := held(ctx, namespace, "gated", podRef(pod)), held(ctx, namespace, "report", podRef(pod))
		remove(ctx, pod)
		expectReleased(ctx, lock)
		expectHeld(ctx, gated)
	})

	It("is released if the Pod ended before the lock was a second old", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		remove(ctx, pod)
		expectReleased(ctx, lock)
	})

	It("is not inherited by a Pod of the same name", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		expectHeld(ctx, lock)
		remove(ctx, pod)
		next := running(ctx, namespace, "worker")
		expectReleased(ctx, lock)
		lock = held(ctx, namespace, "report", podRef(next))
		expectHeld(ctx, lock)
	})

	It("is not released because an earlier Pod of the same name failed", func(ctx context.Context) {
		failed := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(failed))
		setPhase(ctx, failed, corev1.PodFailed, "")
		startOperator(ctx, nil)
		expectReleased(ctx, lock)
		remove(ctx, failed)
		lock = held(ctx, namespace, "report", podRef(running(ctx, namespace, "worker")))
		expectHeld(ctx, lock)
	})

	It("is not released if a hand-off came first", func(ctx context.Context) {
		pod, next := running(ctx, namespace, "worker"), running(ctx, namespace, "next")
		lock := held(ctx, namespace, "report", podRef(pod))
		handedOff := rules.HandOff(lock, rules.Acquisition{Key: "report", Owner: "token-b", Holder: "bob", HolderRef: podRef(next)}, rules.DefaultLimits(), time.Now())
		Expect(operator.Update(ctx, handedOff)).To(Succeed())
		remove(ctx, pod)
		startOperatorWith(ctx, nil, func(r *holders.Reconciler) { r.Client = staleClient{r.Client, lock} })
		expectHeld(ctx, lock)
		Expect(notes(ctx, lock)()).To(BeEmpty())
	})

	It("is recorded as released when the answer was lost", func(ctx context.Context) {
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		remove(ctx, pod)
		startOperatorWith(ctx, nil, func(r *holders.Reconciler) { r.Client = unansweredClient{r.Client} })
		Eventually(recorded(lock)).Should(HaveExactElements(And(HaveField("Reason", audit.HolderGone), HaveField("Unconfirmed", true))))
		Consistently(recorded(lock)).WithTimeout(500 * time.Millisecond).Should(HaveLen(1))
	})

	It("follows the holder to another Pod", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod, next := running(ctx, namespace, "worker"), running(ctx, namespace, "next")
		lock := held(ctx, namespace, "report", podRef(pod))
		expectHeld(ctx, lock)
		lock.Spec.HolderRef = podRef(next)
		Expect(alice.Update(ctx, lock)).To(Succeed())
		remove(ctx, pod)
		expectHeld(ctx, lock)
		remove(ctx, next)
		expectReleased(ctx, lock)
	})

	It("is released after a restart of the operator if the holder ended meanwhile", func(ctx context.Context) {
		stop := startOperator(ctx, nil)
		deleted, failed, alive := running(ctx, namespace, "deleted"), running(ctx, namespace, "failed"), running(ctx, namespace, "alive")
		first, second := held(ctx, namespace, "deleted", podRef(deleted)), held(ctx, namespace, "failed", podRef(failed))
		kept := held(ctx, namespace, "alive", podRef(alive))
		stop()
		remove(ctx, deleted)
		setPhase(ctx, failed, corev1.PodFailed, "")
		expectHeld(ctx, first)
		startOperator(ctx, nil)
		expectReleased(ctx, first)
		expectReleased(ctx, second)
		Expect(exists(ctx, kept)()).To(BeTrue())
	})

	It("is released by the replica that leads", func(ctx context.Context) {
		first, second := environment.Candidate("holders"), environment.Candidate("holders")
		stopFirst := startOperator(ctx, first)
		Eventually(first.IsLeader).Should(BeTrue())
		startOperator(ctx, second)
		early, late, never := running(ctx, namespace, "early"), running(ctx, namespace, "late"), running(ctx, namespace, "never")
		lock, next := held(ctx, namespace, "early", podRef(early)), held(ctx, namespace, "late", podRef(late))
		kept := held(ctx, namespace, "never", podRef(never))
		remove(ctx, early)
		expectReleased(ctx, lock)
		Expect(second.IsLeader()).To(BeFalse())

		stopFirst()
		remove(ctx, late)
		expectReleased(ctx, next)
		Expect(second.IsLeader()).To(BeTrue())
		expectHeld(ctx, kept)
		setPhase(ctx, never, corev1.PodFailed, "")
		expectReleased(ctx, kept)
	})
})

// unansweredClient loses the answers to what it deletes.
type unansweredClient struct{ client.Client }

func (c unansweredClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := c.Client.Delete(ctx, object, options...); err != nil {
		return err
	}
	return apierrors.NewTimeoutError("the answer is lost", 1)
}

// staleClient reads one lock as it was.
type staleClient struct {
	client.Client
	stale *v1alpha1.Lock
}

func (c staleClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if lock, ok := object.(*v1alpha1.Lock); ok && key == client.ObjectKeyFromObject(c.stale) {
		c.stale.DeepCopyInto(lock)
		return nil
	}
	return c.Client.Get(ctx, key, object, options...)
}
