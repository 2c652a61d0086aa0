package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

// What RBAC gives the operator, config/admission-policy/controllers.yaml binds to Jobs under locks.
var _ = Describe("With the operator's identity", func() {
	var (
		namespace string
		operator  client.Client
		// job and settings own pods. No controller runs the Job.
		job      *batchv1.Job
		settings *corev1.ConfigMap
	)
	BeforeEach(func(ctx context.Context) {
		namespace, operator = newNamespace(ctx), environment.Operator().Client
		unlocked := makeJob(namespace, "owner", "key")
		unlocked.Labels, unlocked.Annotations = nil, nil
		unlocked.Spec.ManagedBy = new("example.com/by-hand")
		job = create(ctx, unlocked)
		settings = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
	})
	createPod := func(ctx context.Context, shape func(*corev1.Pod)) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "pod",
				Labels:          map[string]string{batchv1.ControllerUidLabel: string(job.UID)},
				Annotations:     map[string]string{v1alpha1.FencingTokenAnnotation: "7"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "work", Image: "work"}}},
		}
		shape(pod)
		Expect(admin.Create(ctx, pod)).To(Succeed())
		return pod
	}
	deletion := func(pod *corev1.Pod) func(context.Context) error {
		return func(ctx context.Context) error { return operator.Delete(ctx, pod, client.DryRunAll) }
	}

	It("pods of Jobs that were started under a lock can be deleted", func(ctx context.Context) {
		Expect(deletion(createPod(ctx, func(*corev1.Pod) {}))(ctx)).To(Succeed())
	})

	DescribeTable("no other pod can be deleted:", func(ctx context.Context, shape func(*corev1.Pod)) {
		// The API server may not have seen the policy yet.
		Eventually(deletion(createPod(ctx, shape))).WithContext(ctx).WithTimeout(fixture.PolicyTimeout).
			Should(MatchError(ContainSubstring("lock-operator may delete only pods of Jobs that it has started under a lock")))
	},
		Entry("a pod of its own", func(pod *corev1.Pod) { pod.Labels, pod.Annotations, pod.OwnerReferences = nil, nil, nil }),
		Entry("the pod of a Job without a lock", func(pod *corev1.Pod) { pod.Annotations = nil }),
		Entry("a pod with a token and without an owner", func(pod *corev1.Pod) { pod.OwnerReferences = nil }),
		Entry("a pod that its Job does not control", func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }),
		Entry("a pod of another kind of owner", func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(settings, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
			pod.Labels[batchv1.ControllerUidLabel] = string(settings.UID)
		}),
		Entry("a pod with the label of another Job", func(pod *corev1.Pod) { pod.Labels[batchv1.ControllerUidLabel] = "another" }),
		Entry("a pod without the label of a Job", func(pod *corev1.Pod) { pod.Labels = nil }),
	)

	It("no Job without a lock can be changed, nor its status", func(ctx context.Context) {
		started := read(ctx, job)
		patch := client.MergeFrom(started.DeepCopy())
		started.Spec.Suspend = new(true)
		Expect(operator.Patch(ctx, started, patch)).To(MatchError(ContainSubstring("lock-operator may change only Jobs under a lock")))
		failed := read(ctx, job)
		patch = client.MergeFrom(failed.DeepCopy())
		failed.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
		Expect(operator.Status().Patch(ctx, failed, patch)).To(MatchError(ContainSubstring("lock-operator may change only Jobs under a lock")))
	})

	It("a Job that has lost its label can be changed while it has the finalizer", func(ctx context.Context) {
		kept := read(ctx, job)
		kept.Finalizers = []string{v1alpha1.LockFinalizer}
		Expect(admin.Update(ctx, kept)).To(Succeed())
		patch := client.MergeFrom(kept.DeepCopy())
		kept.Finalizers = nil
		Expect(operator.Patch(ctx, kept, patch)).To(Succeed())
	})
})
