package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("A Job that waits for its lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("accepts neither finalizer, fencing token nor place in the queue from a user", func(ctx context.Context) {
		job := create(ctx, makeJob(namespace, "locked", "key", podAnnotated(v1alpha1.FencingTokenAnnotation, "999"),
			annotated(v1alpha1.LockQueuedTimeAnnotation, "2020-01-01T00:00:00.000000Z"), func(job *batchv1.Job) { job.Spec.Suspend = new(false) }))
		expectUnforged := func() {
			GinkgoHelper()
			current := read(ctx, job)
			Expect(current.Spec.Suspend).To(HaveValue(BeTrue()))
			Expect(current.Finalizers).To(ContainElement(v1alpha1.LockFinalizer))
			Expect(current.Spec.Template.Annotations).NotTo(HaveKey(v1alpha1.FencingTokenAnnotation))
			Expect(current.Annotations).To(HaveKeyWithValue(v1alpha1.LockQueuedTimeAnnotation, job.Annotations[v1alpha1.LockQueuedTimeAnnotation]))
			Expect(current.Annotations[v1alpha1.LockQueuedTimeAnnotation]).NotTo(HavePrefix("2020"))
		}
		job = read(ctx, job)
		expectUnforged()
		patch := func(patch string) (string, error) {
			return kubectl.Run(ctx, "", "patch", "job", "locked", "-n", namespace, "--type=merge", "-p", patch)
		}
		for _, forgery := range []string{
			`{"metadata":{"finalizers":null}}`,
			`{"spec":{"suspend":false}}`,
			`{"spec":{"template":{"metadata":{"annotations":{"forrst.dev/fencing-token":"999"}}}}}`,
			`{"metadata":{"annotations":{"forrst.dev/lock-queued-time":"2020-01-01T00:00:00.000000Z"}}}`,
		} {
			_, err := patch(forgery)
			Expect(err).NotTo(HaveOccurred(), forgery)
			expectUnforged()
		}
		_, err := patch(`{"metadata":{"annotations":{"forrst.dev/lock-key":"other"}}}`)
		Expect(err).To(MatchError(ContainSubstring("is immutable")))
	})
})
