package process_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// succeed waits until the Job runs, and writes what the Job controller would, which this control plane lacks: that its
// only pod has succeeded.
func succeed(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	job := &batchv1.Job{}
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(environment.Admin.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job)).To(Succeed())
		g.Expect(job.Spec.Suspend).To(HaveValue(BeFalse()))
		now := metav1.Now()
		job.Status.StartTime, job.Status.CompletionTime = &now, &now
		job.Status.Succeeded, job.Status.Ready, job.Status.Terminating = 1, new(int32(0)), new(int32(0))
		for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		g.Expect(environment.Admin.Client.Status().Update(ctx, job)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// end ends a lock, whoever holds it.
func end(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Expect(testenv.RemoveLock(ctx, environment.Admin.Client, lock.Namespace, lock.Name)).To(Succeed())
}
