package jobs_test

import (
	"context"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A Job under a lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	It("runs while it holds the lock, with the fencing token in its pods, and no longer", func(ctx context.Context) {
		job := create(ctx, makeJob(namespace, "report", "billing:report"))
		Expect(job.Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(job.Finalizers).To(ContainElement(v1alpha1.LockFinalizer))
		Eventually(isRunning(ctx, job)).Should(BeTrue())

		held := lockOf(ctx, namespace, "billing:report")
		Expect(held).NotTo(BeNil())
		Expect(held.Spec.HolderRef).To(HaveValue(Equal(v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "report", UID: job.UID})))
		Expect(held.Spec.Holder).To(Equal(testenv.OperatorUser))
		token, err := held.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		Expect(runningPods(ctx, job)[0].Annotations).To(HaveKeyWithValue(v1alpha1.FencingTokenAnnotation, strconv.FormatInt(token, 10)))

		finish(ctx, job)
		Eventually(func() *v1alpha1.Lock { return lockOf(ctx, namespace, "billing:report") }).Should(BeNil())
		Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
		Expect(admin.Delete(ctx, job)).To(Succeed())
		Eventually(isGone(ctx, job)).Should(BeTrue())
	})

	It("follows the one before it in order of creation, in priority first", func(ctx context.Context) {
		first := create(ctx, makeJob(namespace, "first", "order"))
		Eventually(isRunning(ctx, first)).Should(BeTrue())
		second := create(ctx, makeJob(namespace, "second", "order"))
		third := create(ctx, makeJob(namespace, "third", "order"))
		urgent := create(ctx, makeJob(namespace, "urgent", "order", annotated(v1alpha1.LockPriorityAnnotation, "7")))
		for _, job := range []*batchv1.Job{first, urgent, second, third} {
			finish(ctx, job)
		}
		Expect(startsOf(namespace)).To(Equal([]string{"first", "urgent", "second", "third"}))
	})

	It("that fails releases the lock to the next Job", func(ctx context.Context) {
		failing := create(ctx, makeJob(namespace, "failing", "fails", runFor("1ms"), podAnnotated("test.forrst.dev/fails", "yes")))
		next := create(ctx, makeJob(namespace, "next", "fails"))
		Eventually(has(ctx, failing, batchv1.JobFailed)).Should(BeTrue())
		finish(ctx, next)
	})
})
