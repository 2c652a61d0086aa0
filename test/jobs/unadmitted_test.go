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
)

var _ = Describe("A Job under a lock that was created while the webhook was not installed", func() {
	var namespace string
	var free *batchv1.Job
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		unlabelled := makeJob(namespace, "free", "key", podAnnotated(kubelet.StopFor, "3s"))
		unlabelled.Labels, unlabelled.Annotations = nil, nil
		free = create(ctx, unlabelled)
		Eventually(isRunning(ctx, free)).Should(BeTrue())
		Eventually(func() *metav1.Time { return read(ctx, free).Status.StartTime }).ShouldNot(BeNil())
	})
	AfterEach(expectNoViolations)

	// label makes it what it would be then. Admission exempts the operator, which may change a Job that
	// has the finalizer.
	label := func(ctx context.Context) {
		GinkgoHelper()
		before := read(ctx, free)
		finalized := before.DeepCopy()
		finalized.Finalizers = append(finalized.Finalizers, v1alpha1.LockFinalizer)
		Expect(admin.Patch(ctx, finalized, client.MergeFrom(before))).To(Succeed())
		labelled := finalized.DeepCopy()
		labelled.Finalizers = before.Finalizers
		labelled.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		labelled.Annotations = map[string]string{v1alpha1.LockKeyAnnotation: "key"}
		Expect(environment.Operator().Client.Patch(ctx, labelled, client.MergeFrom(finalized))).To(Succeed())
	}

	It("is suspended, and others are started when its pods have ended", func(ctx context.Context) {
		startOperator(ctx)
		label(ctx)
		Eventually(func() *bool { return read(ctx, free).Spec.Suspend }).Should(HaveValue(BeTrue()))
		urgent := create(ctx, makeJob(namespace, "urgent", "key", annotated(v1alpha1.LockPriorityAnnotation, "7")))
		finish(ctx, urgent)
		finish(ctx, free)
		Expect(startsOf(namespace)).To(Equal([]string{"free", "urgent", "free"}))
	})

	It("and was suspended before the operator saw it run, keeps others from running until its pods have ended", func(ctx context.Context) {
		before := read(ctx, free)
		suspended := before.DeepCopy()
		suspended.Spec.Suspend = new(true)
		Expect(admin.Patch(ctx, suspended, client.MergeFrom(before))).To(Succeed())
		Eventually(has(ctx, free, batchv1.JobSuspended)).Should(BeTrue())
		// Kubernetes 1.36 clears the start time itself. Nothing in spec and status says then that
		// the Job has run.
		cleared := client.RawPatch(types.MergePatchType, []byte(`{"status":{"startTime":null}}`))
		Expect(admin.Status().Patch(ctx, read(ctx, free), cleared)).To(Succeed())
		Expect(read(ctx, free).Status.StartTime).To(BeNil())
		Expect(isRunning(ctx, free)()).To(BeTrue())
		label(ctx)
		urgent := create(ctx, makeJob(namespace, "urgent", "key", annotated(v1alpha1.LockPriorityAnnotation, "7")))
		startOperator(ctx)
		finish(ctx, urgent)
		finish(ctx, free)
		Expect(read(ctx, free).Spec.Template.Annotations).To(HaveKey(v1alpha1.FencingTokenAnnotation))
	})
})
