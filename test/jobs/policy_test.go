package jobs_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("A Job whose lock another caller holds", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	// byManifest has a user hold the lock of the key.
	byManifest := func(ctx context.Context, key string) *v1alpha1.Lock {
		GinkgoHelper()
		return heldByManifest(ctx, namespace, key)
	}

	It("waits for a lock that was taken by a manifest, and says so", func(ctx context.Context) {
		held := byManifest(ctx, "shared")
		first := create(ctx, makeJob(namespace, "waits", "shared"))
		second := create(ctx, makeJob(namespace, "waits-too", "shared"))
		Eventually(func() (string, error) {
			return kubectl.Run(ctx, "", "describe", "job", "waits-too", "-n", namespace)
		}).Should(And(
			ContainSubstring("LockWaiting"), ContainSubstring("Waits at place 2 of 2"), ContainSubstring("lock:shared is held by \"admin\" until "),
		))
		// The annotation says it for as long as it waits.
		Eventually(waitingNote(ctx, second)).Should(MatchRegexp(`^place 2 of 2 at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: lock:shared is held by "admin" until `))
		Eventually(waitingNote(ctx, first)).Should(HavePrefix("place 1 of "))
		Expect(startsOf(namespace)).To(BeEmpty())

		// While a Job runs, a manifest of its key is refused.
		Expect(admin.Delete(ctx, held)).To(Succeed())
		Eventually(isRunning(ctx, first)).Should(BeTrue())
		Expect(waitingNote(ctx, first)()).To(BeEmpty())
		again := held.DeepCopy()
		again.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: held.Name}
		again.Spec = v1alpha1.LockSpec{Key: "shared", Owner: "manifest-2"}
		Expect(admin.Create(ctx, again)).To(MatchError(ContainSubstring("is held by")))
		finish(ctx, first)
		finish(ctx, second)
	})

	It("is completed without a pod under the policy skip", func(ctx context.Context) {
		byManifest(ctx, "skipped")
		job := create(ctx, makeJob(namespace, "skips", "skipped", annotated(v1alpha1.LockPolicyAnnotation, "skip")))
		Eventually(has(ctx, job, batchv1.JobComplete)).Should(BeTrue())
		Expect(conditionOf(read(ctx, job), batchv1.JobComplete)).To(And(HaveField("Reason", "LockSkipped"),
			HaveField("Message", ContainSubstring(`lock:skipped is held by "admin"`))))
		Eventually(eventsOf(ctx, job)).Should(ContainSubstring("Normal LockSkipped"))
		Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
		Expect(startsOf(namespace)).To(BeEmpty())
	})

	It("fails without a pod under the policy fail", func(ctx context.Context) {
		holder := create(ctx, makeJob(namespace, "holder", "failed"))
		Eventually(isRunning(ctx, holder)).Should(BeTrue())
		job := create(ctx, makeJob(namespace, "fails", "failed", annotated(v1alpha1.LockPolicyAnnotation, "fail")))
		Eventually(has(ctx, job, batchv1.JobFailed)).Should(BeTrue())
		Expect(conditionOf(read(ctx, job), batchv1.JobFailed)).To(And(HaveField("Reason", "LockHeld"),
			HaveField("Message", ContainSubstring("on behalf of Job holder"))))
		Eventually(func() []string { return read(ctx, job).Finalizers }).Should(BeEmpty())
		finish(ctx, holder)
		Expect(startsOf(namespace)).To(Equal([]string{"holder"}))
	})

	It("runs under the policies skip and fail when the lock is free", func(ctx context.Context) {
		skip := create(ctx, makeJob(namespace, "skip", "free-1", annotated(v1alpha1.LockPolicyAnnotation, "skip")))
		fail := create(ctx, makeJob(namespace, "fail", "free-2", annotated(v1alpha1.LockPolicyAnnotation, "fail")))
		finish(ctx, skip)
		finish(ctx, fail)
	})

	It("fails when it has waited for as long as it was to", func(ctx context.Context) {
		byManifest(ctx, "slow")
		job := create(ctx, makeJob(namespace, "waits", "slow", annotated(v1alpha1.LockWaitTimeoutAnnotation, "8s")))
		patient := create(ctx, makeJob(namespace, "patient", "slow"))
		Eventually(waitingNote(ctx, job)).Should(HavePrefix("place 1 of "))
		Eventually(has(ctx, job, batchv1.JobFailed)).Should(BeTrue())
		Expect(waitingNote(ctx, job)()).To(BeEmpty())
		condition := conditionOf(read(ctx, job), batchv1.JobFailed)
		Expect(condition.Reason).To(Equal("LockWaitTimeout"))
		Expect(condition.LastTransitionTime.Sub(job.CreationTimestamp.Time)).To(BeNumerically(">=", 8*time.Second))
		Expect(conditionOf(read(ctx, patient), batchv1.JobFailed)).To(BeNil())
		Expect(startsOf(namespace)).To(BeEmpty())
	})

	It("of a CronJob is skipped without blocking the runs that follow", func(ctx context.Context) {
		held := byManifest(ctx, "nightly")
		template := makeJob(namespace, "", "nightly", annotated(v1alpha1.LockPolicyAnnotation, "skip"))
		cron := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
			Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent,
				JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec},
			},
		}
		Expect(admin.Create(ctx, cron)).To(Succeed())
		// A run that was missed is made up for at once.
		Eventually(func() error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(cron), cron); err != nil {
				return err
			}
			cron.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
			return admin.Status().Update(ctx, cron)
		}).Should(Succeed())
		var runs batchv1.JobList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &runs, client.InNamespace(namespace))).To(Succeed())
			g.Expect(runs.Items).NotTo(BeEmpty())
			g.Expect(conditionOf(&runs.Items[0], batchv1.JobComplete)).NotTo(BeNil())
		}).WithTimeout(3 * time.Minute).Should(Succeed())
		Expect(conditionOf(&runs.Items[0], batchv1.JobComplete).Reason).To(Equal("LockSkipped"))
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(cron), cron)).To(Succeed())
			g.Expect(cron.Status.Active).To(BeEmpty())
		}).Should(Succeed())
		Expect(admin.Delete(ctx, held)).To(Succeed())
	})
})

// waitingNote returns what the Job is told in its annotation while it waits.
func waitingNote(ctx context.Context, job *batchv1.Job) func() string {
	return func() string { return read(ctx, job).Annotations[v1alpha1.LockWaitingAnnotation] }
}
