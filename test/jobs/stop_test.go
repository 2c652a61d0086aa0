package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A Job under a lock that is stopped", func() {
	var namespace string
	var running, next *batchv1.Job
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
		// Its pods take a while to end.
		running = create(ctx, makeJob(namespace, "running", "key", podAnnotated(kubelet.StopFor, "3s")))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		next = create(ctx, makeJob(namespace, "next", "key"))
	})
	AfterEach(expectNoViolations)

	// suspend says what a user wants.
	suspend := func(ctx context.Context, job *batchv1.Job, isSuspended bool) {
		GinkgoHelper()
		Eventually(func() error {
			current := read(ctx, job)
			current.Spec.Suspend = &isSuspended
			return admin.Update(ctx, current)
		}).Should(Succeed())
	}

	DescribeTable("by its deletion keeps the lock until its last pod has ended, for a deletion", func(ctx context.Context, policy metav1.DeletionPropagation) {
		Expect(admin.Delete(ctx, running, client.PropagationPolicy(policy))).To(Succeed())
		Eventually(isRunning(ctx, next)).Should(BeTrue())
		Eventually(isGone(ctx, running)).Should(BeTrue())
		finish(ctx, next)
	},
		Entry("in the background", metav1.DeletePropagationBackground),
		Entry("in the foreground", metav1.DeletePropagationForeground),
	)

	It("by a deletion that orphans its pods keeps the lock until they have ended", func(ctx context.Context) {
		pods := runningPods(ctx, running)
		Expect(admin.Delete(ctx, running, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(func() []metav1.OwnerReference {
			return runningPods(ctx, running)[0].OwnerReferences
		}).Should(BeEmpty())
		Consistently(isRunning(ctx, next)).WithTimeout(4 * lookAgain).Should(BeFalse())
		Expect(runningPods(ctx, running)).To(HaveLen(1), "the pod was to be left alone")
		node.End(pods[0].UID)
		Eventually(isRunning(ctx, next)).Should(BeTrue())
		Eventually(isGone(ctx, running)).Should(BeTrue())
		finish(ctx, next)
	})

	It("by a user releases the lock, and runs again when it is resumed and holds the lock", func(ctx context.Context) {
		suspend(ctx, running, true)
		Eventually(isRunning(ctx, next)).Should(BeTrue())
		Expect(holderOf(ctx, namespace, "key")()).To(Equal(next.UID))
		finish(ctx, next)
		Eventually(func() *v1alpha1.Lock { return lockOf(ctx, namespace, "key") }).Should(BeNil())
		Expect(read(ctx, running).Annotations).To(HaveKeyWithValue(v1alpha1.LockPausedAnnotation, "true"))

		suspend(ctx, running, false)
		finish(ctx, running)
		starts := startsOf(namespace)
		Expect(starts).To(Equal([]string{"running", "next", "running"}))
		tokens := tokensOf(namespace)
		Expect(tokens[2]).To(BeNumerically(">", tokens[1]))
	})

	It("by the loss of its lock is suspended, and runs again when it holds it", func(ctx context.Context) {
		Expect(testenv.RemoveLock(ctx, admin, namespace, lockOf(ctx, namespace, "key").Name)).To(Succeed())
		Eventually(eventsOf(ctx, running)).Should(ContainSubstring("Warning LockLost"))
		Expect(isRunning(ctx, next)()).To(BeFalse(), "the pods of the other Job are about to end")
		finish(ctx, next)
		finish(ctx, running)
		Expect(startsOf(namespace)).To(Equal([]string{"running", "next", "running"}))
	})

	It("before the Job controller has created its pod keeps the lock until that controller has seen the stop", func(ctx context.Context) {
		Expect(manager.Pause()).To(Succeed())
		DeferCleanup(func() error { return manager.Resume() })
		started := create(ctx, makeJob(namespace, "started", "other"))
		Eventually(func() *bool { return read(ctx, started).Spec.Suspend }).Should(HaveValue(BeFalse()))
		waiting := create(ctx, makeJob(namespace, "waiting", "other"))
		suspend(ctx, started, true)
		// There is no pod, but the Job controller may be about to create one.
		Consistently(holderOf(ctx, namespace, "other")).WithTimeout(3 * lookAgain).Should(Equal(started.UID))
		Expect(manager.Resume()).To(Succeed())
		finish(ctx, waiting)
		// It often creates one, which must end first.
		starts := startsOf(namespace)
		Expect(starts[len(starts)-1]).To(Equal("waiting"))
	})

	It("before it was started never runs", func(ctx context.Context) {
		suspend(ctx, next, false)
		Expect(read(ctx, next).Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(admin.Delete(ctx, next, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(isGone(ctx, next)).Should(BeTrue())
		finish(ctx, running)
		Eventually(holderOf(ctx, namespace, "key")).Should(Equal(types.UID("")))
		Expect(startsOf(namespace)).To(Equal([]string{"running"}))
	})
})
