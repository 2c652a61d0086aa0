package jobs_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// shortly is how long a spec watches for an error that would come at once.
const shortly = 1500 * time.Millisecond

var _ = Describe("The pods of a Job under a lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	It("keep the lock until the last of them has ended, for each form of counting completions", func(ctx context.Context) {
		forms := []struct {
			key            string
			parallel, pods int
			form           change
			several, next  *batchv1.Job
			told           map[types.UID]bool
		}{
			{key: "at-the-same-time", parallel: 3, pods: 3, form: counted(3, new(int32(3)))},
			{key: "one-after-the-other", parallel: 1, pods: 2, form: counted(1, new(int32(2)))},
			{key: "indexed", parallel: 2, pods: 3, form: counted(2, new(int32(3)), indexed)},
			{key: "from-a-queue", parallel: 3, pods: 3, form: counted(3, nil)},
		}
		for i := range forms {
			form := &forms[i]
			form.several, form.next = createTwo(ctx, namespace, form.key, form.form)
			form.told = map[types.UID]bool{}
		}
		for _, form := range forms {
			Eventually(func() []corev1.Pod { return runningPods(ctx, form.several) }).Should(HaveLen(form.parallel), form.key)
			for range form.pods - 1 {
				endOne(ctx, form.several, form.told)
			}
		}
		for _, form := range forms {
			Eventually(func() int32 { return read(ctx, form.several).Status.Succeeded }).Should(BeEquivalentTo(form.pods-1), form.key)
			Eventually(isRunning(ctx, form.several)).Should(BeTrue(), form.key)
		}
		Consistently(func(g Gomega) {
			for _, form := range forms {
				g.Expect(holderOf(ctx, namespace, form.key)()).To(Equal(form.several.UID), form.key)
			}
		}).WithTimeout(shortly).Should(Succeed())
		for _, form := range forms {
			Expect(startsOfKey(namespace, form.key)).To(HaveEach(form.several.Name))
			endOne(ctx, form.several, form.told)
		}
		for _, form := range forms {
			finish(ctx, form.next)
			Expect(conditionOf(read(ctx, form.several), batchv1.JobComplete)).NotTo(BeNil(), form.key)
			starts := startsOfKey(namespace, form.key)
			Expect(starts).To(HaveLen(form.pods + 1))
			Expect(starts[form.pods]).To(Equal(form.next.Name))
		}
	})

	It("keep the lock while they stop, for success, failure and deadline", func(ctx context.Context) {
		slowly := podAnnotated(kubelet.StopFor, "3s")
		done, afterDone := createTwo(ctx, namespace, "enough", slowly, counted(3, new(int32(3)), indexed), func(job *batchv1.Job) {
			job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		})
		failed, afterFailed := createTwo(ctx, namespace, "failed-for-good", slowly, counted(2, new(int32(2))), podAnnotated(kubelet.ExitCode, "42"),
			failurePolicy(batchv1.PodFailurePolicyRule{
				Action:      batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
			}))
		late, afterLate := createTwo(ctx, namespace, "out-of-time", slowly, func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(1)) })

		Eventually(func() []corev1.Pod { return runningPods(ctx, done) }).Should(HaveLen(3))
		for _, pod := range runningPods(ctx, done) {
			if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "0" {
				node.End(pod.UID)
			}
		}
		Eventually(func() []corev1.Pod { return runningPods(ctx, failed) }).Should(HaveLen(2))
		node.Fail(runningPods(ctx, failed)[0].UID)
		for job, condition := range map[*batchv1.Job]batchv1.JobConditionType{
			done: batchv1.JobSuccessCriteriaMet, failed: batchv1.JobFailureTarget, late: batchv1.JobFailureTarget,
		} {
			Eventually(has(ctx, job, condition)).Should(BeTrue(), job.Name)
		}
		// What the kubelet notes shows that these start when the pods have ended.
		finishAll(ctx, afterDone, afterFailed, afterLate)
		Expect(conditionOf(read(ctx, failed), batchv1.JobFailed).Reason).To(Equal(batchv1.JobReasonPodFailurePolicy))
		Expect(conditionOf(read(ctx, late), batchv1.JobFailed).Reason).To(Equal(batchv1.JobReasonDeadlineExceeded))
	})

	It("keep the lock between a failure or an eviction and the next attempt, when none runs", func(ctx context.Context) {
		retried, afterRetried := createTwo(ctx, namespace, "retried", func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32(2)) })
		disrupted, afterDisrupted := createTwo(ctx, namespace, "disrupted", podAnnotated(kubelet.StopFor, "1s"),
			failurePolicy(batchv1.PodFailurePolicyRule{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}))
		Eventually(isRunning(ctx, retried)).Should(BeTrue())
		Eventually(isRunning(ctx, disrupted)).Should(BeTrue())
		evicted := runningPods(ctx, disrupted)[0]
		Expect(admin.SubResource("eviction").Create(ctx, &evicted, &policyv1.Eviction{})).To(Succeed())
		node.Fail(runningPods(ctx, retried)[0].UID)
		Eventually(func() int32 { return read(ctx, retried).Status.Failed }).Should(BeEquivalentTo(1))
		Expect(runningPods(ctx, retried)).To(BeEmpty(), "the Job controller waits for 10 seconds")
		Consistently(func(g Gomega) {
			g.Expect(holderOf(ctx, namespace, "retried")()).To(Equal(retried.UID))
			g.Expect(holderOf(ctx, namespace, "disrupted")()).To(Equal(disrupted.UID))
		}).WithTimeout(3 * lookAgain).Should(Succeed())
		finishAll(ctx, retried, disrupted)
		finishAll(ctx, afterRetried, afterDisrupted)
		for first, next := range map[*batchv1.Job]*batchv1.Job{retried: afterRetried, disrupted: afterDisrupted} {
			Expect(startsOfKey(namespace, first.Name)).To(Equal([]string{first.Name, first.Name, next.Name}))
			tokens := tokensOfKey(namespace, first.Name)
			Expect(tokens[1]).To(Equal(tokens[0]))
			Expect(tokens[2]).To(BeNumerically(">", tokens[1]))
		}
	})

	It("leave nothing that keeps a Job after its ttlSecondsAfterFinished, whether it ran or was skipped", func(ctx context.Context) {
		shortLived := func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = new(int32(0)) }
		ran := create(ctx, makeJob(namespace, "ran", "key", shortLived))
		Eventually(isRunning(ctx, ran)).Should(BeTrue())
		skipped := create(ctx, makeJob(namespace, "skipped", "key", shortLived, annotated(v1alpha1.LockPolicyAnnotation, "skip")))
		Eventually(isGone(ctx, skipped)).Should(BeTrue())
		node.End(runningPods(ctx, ran)[0].UID)
		Eventually(isGone(ctx, ran)).Should(BeTrue())
		Eventually(func() *v1alpha1.Lock { return lockOf(ctx, namespace, "key") }).Should(BeNil())
		Expect(startsOf(namespace)).To(Equal([]string{"ran"}))
	})

	It("whose node is lost keep the lock until they are removed", func(ctx context.Context) {
		evicted, afterEvicted := createTwo(ctx, namespace, "evicted")
		deleted, afterDeleted := createTwo(ctx, namespace, "deleted")
		var pods []corev1.Pod
		for _, job := range []*batchv1.Job{evicted, deleted} {
			Eventually(isRunning(ctx, job)).Should(BeTrue())
			pods = append(pods, runningPods(ctx, job)...)
		}
		for i := range pods {
			node.Lose(pods[i].UID)
		}
		// As by the taint of the node, and by a user.
		Expect(admin.Delete(ctx, &pods[0])).To(Succeed())
		Expect(admin.Delete(ctx, deleted, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(has(ctx, evicted, batchv1.JobFailureTarget)).Should(BeTrue())
		for i := range pods {
			Eventually(func(g Gomega) {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(&pods[i]), &pods[i])).To(Succeed())
				g.Expect(pods[i].DeletionTimestamp).NotTo(BeNil())
			}).Should(Succeed())
		}
		Consistently(func(g Gomega) {
			g.Expect(holderOf(ctx, namespace, "evicted")()).To(Equal(evicted.UID))
			g.Expect(holderOf(ctx, namespace, "deleted")()).To(Equal(deleted.UID))
		}).WithTimeout(3 * lookAgain).Should(Succeed())
		for i := range pods {
			Expect(admin.Delete(ctx, &pods[i], client.GracePeriodSeconds(0), client.Preconditions{UID: &pods[i].UID})).To(Succeed())
		}
		finishAll(ctx, afterEvicted, afterDeleted)
		Expect(startsOfKey(namespace, "evicted")).To(Equal([]string{"evicted", "evicted-next"}))
		Expect(startsOfKey(namespace, "deleted")).To(Equal([]string{"deleted", "deleted-next"}))
	})
})

// endOne ends a running pod that it has not ended before.
func endOne(ctx context.Context, job *batchv1.Job, told map[types.UID]bool) {
	GinkgoHelper()
	Eventually(func() bool {
		for _, pod := range runningPods(ctx, job) {
			if !told[pod.UID] {
				told[pod.UID] = true
				node.End(pod.UID)
				return true
			}
		}
		return false
	}).Should(BeTrue(), job.Name)
}

// counted sets how many pods run at a time, and how many complete the Job.
func counted(parallelism int32, completions *int32, changes ...change) change {
	return func(job *batchv1.Job) {
		job.Spec.Parallelism, job.Spec.Completions = &parallelism, completions
		for _, change := range changes {
			change(job)
		}
	}
}

func indexed(job *batchv1.Job) { job.Spec.CompletionMode = new(batchv1.IndexedCompletion) }

func failurePolicy(rules ...batchv1.PodFailurePolicyRule) change {
	return func(job *batchv1.Job) { job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}
