package runbooks_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// key is the key of the examples, and lockName the name of its lock.
const (
	key      = "billing:report"
	lockName = "billing--report"
)

// createJob creates a Job under the lock of [key] whose pod runs as long as that.
func createJob(ctx context.Context, namespace, name, runFor string, changes ...func(*batchv1.Job)) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: key},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					kubelet.Key: namespace + "/" + key, kubelet.RunFor: runFor, kubelet.StopFor: "0s",
				}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(2)),
					Containers: []corev1.Container{{Name: "work", Image: "work"}},
				},
			},
		},
	}
	for _, change := range changes {
		change(job)
	}
	Expect(root.Client.Create(ctx, job)).To(Succeed())
	return job
}

// exists returns whether the object exists.
func exists(ctx context.Context, object client.Object) bool {
	GinkgoHelper()
	err := root.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

// startsOf returns the Jobs of the namespace in the order in which their pods have started.
func startsOf(namespace string) []string {
	var order []string
	for _, started := range node.Starts() {
		if started.Key == namespace+"/"+key {
			order = append(order, started.Job)
		}
	}
	return order
}

// acquire creates the lock of the key as the user.
func acquire(ctx context.Context, who fixture.Identity, namespace, key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	GinkgoHelper()
	lock := fixture.Manifest(namespace, key, changes...)
	Expect(who.Client.Create(ctx, lock)).To(Succeed())
	return lock
}

// tokenOf returns the fencing token of the lock as it is stored.
func tokenOf(ctx context.Context, lock *v1alpha1.Lock) int64 {
	GinkgoHelper()
	Expect(exists(ctx, lock)).To(BeTrue())
	token, err := lock.FencingToken()
	Expect(err).NotTo(HaveOccurred())
	return token
}

// addFinalizer gives the lock a finalizer, as any user can while the webhook is not installed: the operator's own
// writes do not pass through it.
func addFinalizer(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Expect(exists(ctx, lock)).To(BeTrue())
	lock.Finalizers = append(lock.Finalizers, "example.com/archive")
	Expect(environment.Operator().Client.Update(ctx, lock)).To(Succeed())
}

// awaitExpiry returns when the lock has expired also for an operator that allows a second for differing
// clocks and knows the API server's time to a second.
func awaitExpiry(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(time.Now).WithContext(ctx).WithTimeout(patience).Should(BeTemporally(">", lock.Spec.ExpireTime.Time.Add(2*time.Second)))
}
