package holders_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func template() corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: "simulated", RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "work", Image: "work"}},
	}
}

// running creates a Pod that runs without a kubelet.
func running(ctx context.Context, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: template()}
	Expect(admin.Create(ctx, pod)).To(Succeed())
	setPhase(ctx, pod, corev1.PodRunning, "")
	return pod
}

// setPhase does what the kubelet does.
func setPhase(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, reason string) {
	GinkgoHelper()
	Eventually(func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status.Phase, pod.Status.Reason = phase, reason
		return admin.Status().Update(ctx, pod)
	}).Should(Succeed())
}

// remove deletes an object at once, as the kubelet does with a Pod whose containers have
// ended, or "kubectl delete --force".
func remove(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, object, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
}

func refTo(apiVersion, kind string, object client.Object) *v1alpha1.HolderReference {
	return &v1alpha1.HolderReference{APIVersion: apiVersion, Kind: kind, Name: object.GetName(), UID: object.GetUID()}
}

func podRef(pod *corev1.Pod) *v1alpha1.HolderReference { return refTo("v1", "Pod", pod) }

func jobRef(job *batchv1.Job) *v1alpha1.HolderReference { return refTo("batch/v1", "Job", job) }
