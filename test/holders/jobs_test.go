package holders_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The Job controller is the real one.
var _ = Describe("A lock that is held for a Job", Ordered, func() {
	var namespace string

	BeforeAll(func() {
		manager, err := environment.StartControllerManager("job-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
	})

	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx, nil)
	})

	started := func(ctx context.Context, isSuspended bool) *batchv1.Job {
		GinkgoHelper()
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "batch"}, Spec: batchv1.JobSpec{
			BackoffLimit: new(int32), Suspend: &isSuspended, Template: corev1.PodTemplateSpec{Spec: template()},
		}}
		Expect(admin.Create(ctx, job)).To(Succeed())
		return job
	}
	podOf := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		var pods corev1.PodList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
		}).Should(Succeed())
		setPhase(ctx, &pods.Items[0], corev1.PodRunning, "")
		return &pods.Items[0]
	}

	DescribeTable("is released when the Job", func(ctx context.Context, phase corev1.PodPhase, how string) {
		job := started(ctx, false)
		lock := held(ctx, namespace, "report", jobRef(job))
		Expect(lock.OwnerReferences).To(BeEmpty(), "its pods may outlive it")
		pod := podOf(ctx)
		expectHeld(ctx, lock)
		setPhase(ctx, pod, phase, "")
		expectReleased(ctx, lock)
		Eventually(notes(ctx, lock)).Should(ConsistOf("Released the lock: Job batch (UID " + string(job.UID) + ") " + how))
	},
		Entry("is complete", corev1.PodSucceeded, "is complete"),
		Entry("has failed", corev1.PodFailed, "has failed: BackoffLimitExceeded"),
	)

	It("stays after the Job was deleted until its pods have ended", func(ctx context.Context) {
		job := started(ctx, false)
		lock := held(ctx, namespace, "report", jobRef(job))
		pod := podOf(ctx)
		remove(ctx, job)
		expectHeld(ctx, lock)
		setPhase(ctx, pod, corev1.PodSucceeded, "")
		expectReleased(ctx, lock)
		Eventually(notes(ctx, lock)).Should(ConsistOf(HaveSuffix("was deleted")))
	})

	It("is released when a Job is deleted that never started", func(ctx context.Context) {
		job := started(ctx, true)
		lock := held(ctx, namespace, "report", jobRef(job))
		expectHeld(ctx, lock)
		remove(ctx, job)
		expectReleased(ctx, lock)
	})
})
