package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("A Job under a lock whose pod ends when it is suspended", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	// endAndSuspend ends the pod of a new Job, suspends the Job and lets the operator
	// ask the Job controller, before that one looks at either.
	endAndSuspend := func(ctx context.Context, changes ...change) *batchv1.Job {
		GinkgoHelper()
		job := create(ctx, makeJob(namespace, "job", "key", changes...))
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		Eventually(func() *metav1.Time { return read(ctx, job).Status.StartTime }).ShouldNot(BeNil())
		Expect(manager.Pause()).To(Succeed())
		DeferCleanup(func() error { return manager.Resume() })
		node.End(runningPods(ctx, job)[0].UID)
		Eventually(isRunning(ctx, job)).Should(BeFalse())
		before := read(ctx, job)
		suspended := before.DeepCopy()
		suspended.Spec.Suspend = new(true)
		Expect(admin.Patch(ctx, suspended, client.MergeFrom(before))).To(Succeed())
		Eventually(func() *int32 { return read(ctx, job).Status.Ready }).Should(BeNil())
		Expect(manager.Resume()).To(Succeed())
		return job
	}

	DescribeTable("finishes", func(ctx context.Context, want batchv1.JobConditionType, changes ...change) {
		job := endAndSuspend(ctx, changes...)
		// The Job controller may also look at the suspension first and not count the pod.
		isPaused := func() bool { return jobs.PhaseOf(read(ctx, job)) == jobs.Paused }
		Eventually(func() bool { return has(ctx, job, want)() || isPaused() }).Should(BeTrue())
		if !isPaused() {
			Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
		}
		finish(ctx, create(ctx, makeJob(namespace, "next", "key")))
	},
		Entry("when it has succeeded", batchv1.JobComplete),
		Entry("when it has failed", batchv1.JobFailed, podAnnotated(kubelet.Fails, "yes")),
	)

	It("can be deleted", func(ctx context.Context) {
		job := endAndSuspend(ctx)
		Expect(admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(isGone(ctx, job)).Should(BeTrue())
	})
})

var _ = Describe("A Job under a lock that is decided and has no start time", func() {
	It("is finished and can be deleted", func(ctx context.Context) {
		// As older versions of the operator left it, and as Kubernetes itself does since 1.36
		// when the pod of a suspended Job succeeds after all.
		namespace := newNamespace(ctx)
		job := create(ctx, makeJob(namespace, "job", "key"))
		before := read(ctx, job)
		decided := before.DeepCopy()
		now := metav1.Now()
		decided.Status.Conditions = append(decided.Status.Conditions, batchv1.JobCondition{
			Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: "Test", Message: "decided", LastProbeTime: now, LastTransitionTime: now,
		})
		Expect(admin.Status().Patch(ctx, decided, client.MergeFrom(before))).To(Succeed())
		startOperator(ctx)
		Eventually(has(ctx, job, batchv1.JobFailed)).Should(BeTrue())
		Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
	})
})
