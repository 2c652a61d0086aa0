package metrics_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// lockedJob returns a Job under a lock.
func lockedJob(namespace, name, key string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{"forrst.dev/lock-key": key},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}},
		}}},
	}
}

// end ends a lock, whoever holds it.
func end(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Expect(testenv.RemoveLock(ctx, environment.Admin.Client, lock.Namespace, lock.Name)).To(Succeed())
}
