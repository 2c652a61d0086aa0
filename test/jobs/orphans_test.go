package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("A Job under a lock that was deleted without its pods", func() {
	AfterEach(expectNoViolations)

	// The Job controller counts only pods that the Job owns.
	It("keeps the lock for them when it has failed by its deadline", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		startOperator(ctx)
		running := create(ctx, makeJob(namespace, "running", "key"))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		next := create(ctx, makeJob(namespace, "next", "key"))
		pods := runningPods(ctx, running)
		Expect(admin.Delete(ctx, running, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(func() []metav1.OwnerReference {
			return runningPods(ctx, running)[0].OwnerReferences
		}).Should(BeEmpty())
		before := read(ctx, running)
		overdue := before.DeepCopy()
		overdue.Spec.ActiveDeadlineSeconds = new(int64(1))
		Expect(admin.Patch(ctx, overdue, client.MergeFrom(before))).To(Succeed())
		Eventually(has(ctx, running, batchv1.JobFailed)).Should(BeTrue())
		Consistently(isRunning(ctx, next)).WithTimeout(3 * lookAgain).Should(BeFalse())
		Expect(holderOf(ctx, namespace, "key")()).To(Equal(running.UID))
		Expect(isGone(ctx, running)()).To(BeFalse())
		node.End(pods[0].UID)
		finish(ctx, next)
		Eventually(isGone(ctx, running)).Should(BeTrue())
	})
})

var _ = Describe("A Job under a lock that is deleted while the operator is away", func() {
	It("stays until a user who may force a release takes the finalizer from it", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		job := create(ctx, makeJob(namespace, "abandoned", "key"))
		Expect(admin.Delete(ctx, job)).To(Succeed())
		take := func(as client.Client) {
			GinkgoHelper()
			before := read(ctx, job)
			bare := before.DeepCopy()
			bare.Finalizers = nil
			Expect(as.Patch(ctx, bare, client.MergeFrom(before))).To(Succeed())
		}
		const editors = "editors-of-abandoned-jobs"
		environment.AllowGroup(ctx, editors, []string{batchv1.GroupName}, []string{"jobs"}, []string{"get", "patch"})
		take(environment.Identity("editor-of-abandoned-jobs", editors).Client)
		Expect(read(ctx, job).Finalizers).To(ContainElement(v1alpha1.LockFinalizer))
		take(admin)
		Eventually(isGone(ctx, job)).Should(BeTrue())
	})
})
