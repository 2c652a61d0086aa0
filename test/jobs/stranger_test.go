package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("A pod of another namespace", func() {
	It("does not keep the lock of a Job whose label it bears", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		startOperator(ctx)
		running := create(ctx, makeJob(namespace, "running", "key"))
		next := create(ctx, makeJob(namespace, "next", "key"))
		Expect(admin.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: newNamespace(ctx), Name: "stranger", Labels: map[string]string{batchv1.ControllerUidLabel: string(running.UID)},
				Annotations: map[string]string{kubelet.RunFor: "forever"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "work", Image: "work"}}},
		})).To(Succeed())
		finish(ctx, running)
		finish(ctx, next)
	})
})
