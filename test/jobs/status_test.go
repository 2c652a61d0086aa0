package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

// A write of the status can change metadata, and the webhook is not asked about it.
// config/admission-policy/job_status.yaml refuses what its rules would not allow.
var _ = Describe("A user who may write the status of Jobs, and no Jobs", Ordered, func() {
	var (
		writer    fixture.Identity
		namespace string
	)
	const label, annotations, finalizer = "the label forrst.dev/lock", "annotations forrst.dev/lock-*", "the finalizer forrst.dev/lock"
	write := func(ctx context.Context, job *batchv1.Job, kind, patch string, flags ...string) error {
		_, err := writer.Kubectl.Run(ctx, "", append(flags, "patch", "job", job.Name, "-n", namespace, "--subresource=status", "--type="+kind, "-p", patch)...)
		return err
	}
	// suspended returns the Job after the Job controller has written its status.
	suspended := func(ctx context.Context, job *batchv1.Job) *batchv1.Job {
		GinkgoHelper()
		created := create(ctx, job)
		Eventually(has(ctx, created, batchv1.JobSuspended)).Should(BeTrue())
		return created
	}
	waiting := func(ctx context.Context) *batchv1.Job {
		GinkgoHelper()
		return suspended(ctx, makeJob(namespace, "locked", "key", annotated(v1alpha1.LockPriorityAnnotation, "1")))
	}
	refuse := func(ctx context.Context, job *batchv1.Job, kind, patch, refusal string) {
		GinkgoHelper()
		before := read(ctx, job)
		Expect(write(ctx, job, kind, patch)).To(MatchError(And(ContainSubstring(refusal), ContainSubstring("(Forbidden)"))))
		after := read(ctx, job)
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations))
		Expect(after.Finalizers).To(Equal(before.Finalizers))
	}
	BeforeAll(func(ctx context.Context) {
		groups := []string{batchv1.GroupName}
		environment.AllowGroup(ctx, "readers-of-jobs", groups, []string{"jobs", "jobs/status"}, []string{"get"})
		environment.AllowGroup(ctx, "writers-of-status", groups, []string{"jobs/status"}, []string{"patch", "update"})
		writer = environment.Identity("writer", "readers-of-jobs", "writers-of-status")
		By("waiting until the API server has loaded the policy")
		namespace = newNamespace(ctx)
		job := waiting(ctx)
		Eventually(func() error {
			return write(ctx, job, "merge", `{"metadata":{"annotations":{"forrst.dev/lock-priority":"7"}}}`, "--dry-run=server")
		}).WithTimeout(fixture.PolicyTimeout).Should(MatchError(ContainSubstring(annotations)))
	})
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	DescribeTable("does not change what binds a Job to its lock:", func(ctx context.Context, kind, patch, refusal string) {
		refuse(ctx, waiting(ctx), kind, patch, refusal)
	},
		Entry("no label", "merge", `{"metadata":{"labels":{"forrst.dev/lock":null}}}`, label),
		Entry("the label turned off", "merge", `{"metadata":{"labels":{"forrst.dev/lock":"false"}}}`, label),
		Entry("a queue of Kueue", "merge", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}}}`, "may not change the label kueue.x-k8s.io/queue-name"),
		Entry("no key", "merge", `{"metadata":{"annotations":{"forrst.dev/lock-key":null}}}`, annotations),
		Entry("another key", "json", `[{"op":"replace","path":"/metadata/annotations/forrst.dev~1lock-key","value":"other"}]`, annotations),
		Entry("another place in the queue", "strategic", `{"metadata":{"annotations":{"forrst.dev/lock-queued-time":"2020-01-01T00:00:00.000000Z"}}}`, annotations),
		Entry("another priority", "merge", `{"metadata":{"annotations":{"forrst.dev/lock-priority":"7"}}}`, annotations),
		Entry("a mark of its own", "merge", `{"metadata":{"annotations":{"forrst.dev/lock-stopping":"true"}}}`, annotations),
		Entry("no finalizer", "merge", `{"metadata":{"finalizers":null}}`, finalizer),
		Entry("no metadata", "merge", `{"metadata":{"labels":null,"annotations":null,"finalizers":null}}`, label),
	)

	It("does not put another Job under a lock", func(ctx context.Context) {
		unlocked := makeJob(namespace, "free", "key")
		unlocked.Labels, unlocked.Annotations, unlocked.Spec.Suspend = nil, nil, new(true)
		refuse(ctx, suspended(ctx, unlocked), "merge", `{"metadata":{"labels":{"forrst.dev/lock":"true"},"annotations":{"forrst.dev/lock-key":"key"}}}`, label)
	})

	It("does not change it by a whole object", func(ctx context.Context) {
		changed := read(ctx, waiting(ctx))
		changed.Labels = nil
		Expect(writer.Client.Status().Update(ctx, changed)).To(MatchError(ContainSubstring(label)))
	})

	It("writes the status, and other metadata of the Job", func(ctx context.Context) {
		job := waiting(ctx)
		Expect(write(ctx, job, "strategic", `{"metadata":{"labels":{"app":"billing"},"annotations":{"example.com/seen":"yes"}},
			"status":{"conditions":[{"type":"example.com/Seen","status":"True"}]}}`)).To(Succeed())
		for _, finalizers := range []string{`["forrst.dev/lock","example.com/hold"]`, `["forrst.dev/lock"]`} {
			Expect(write(ctx, job, "merge", `{"metadata":{"finalizers":`+finalizers+`}}`)).To(Succeed())
		}
		Expect(has(ctx, job, "example.com/Seen")()).To(BeTrue())
		Expect(read(ctx, job).Annotations).To(HaveKeyWithValue("example.com/seen", "yes"))
	})

	It("leaves the status of a Job under a lock to the Job controller and the operator", func(ctx context.Context) {
		job := waiting(ctx)
		startOperator(ctx)
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		Eventually(func() int32 { return read(ctx, job).Status.Active }).Should(BeEquivalentTo(1))
		skipped := create(ctx, makeJob(namespace, "skipped", "key", annotated(v1alpha1.LockPolicyAnnotation, "skip")))
		Eventually(has(ctx, skipped, batchv1.JobComplete)).Should(BeTrue())
		finish(ctx, job)
		Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
	})

	It("leaves it to the operator to change an annotation by the status", func(ctx context.Context) {
		job := waiting(ctx)
		for _, value := range []string{`"place 2 of 2"`, "null"} {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.LockWaitingAnnotation+`":`+value+`}}}`))
			Expect(environment.Operator().Client.Status().Patch(ctx, read(ctx, job), patch)).To(Succeed())
		}
		Expect(read(ctx, job).Annotations).NotTo(HaveKey(v1alpha1.LockWaitingAnnotation))
	})
})
