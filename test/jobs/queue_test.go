package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/describe"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("The queue of the Jobs of a key", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	// annotate changes what a Job asks for.
	annotate := func(ctx context.Context, name, annotation string) {
		GinkgoHelper()
		_, err := kubectl.Run(ctx, "", "annotate", "job", name, "-n", namespace, "--overwrite", annotation)
		Expect(err).NotTo(HaveOccurred())
	}
	described := func(ctx context.Context, name string) func() (string, error) {
		return func() (string, error) { return kubectl.Run(ctx, "", "describe", "job", name, "-n", namespace) }
	}
	named := func(ctx context.Context, names ...string) []*batchv1.Job {
		GinkgoHelper()
		var created []*batchv1.Job
		for _, name := range names {
			created = append(created, create(ctx, makeJob(namespace, name, "key")))
		}
		return created
	}

	It("moves up when a Job in the middle is deleted, and shows its places and its length", func(ctx context.Context) {
		first := startOperator(ctx)
		created := named(ctx, "running")
		Eventually(isRunning(ctx, created[0])).Should(BeTrue())
		created = append(created, named(ctx, "second", "third", "fourth")...)
		Eventually(described(ctx, "fourth")).Should(ContainSubstring(
			fmt.Sprintf("Waits at place 3 of 3: lock:key is held by %q until ", testenv.OperatorUser)))
		Expect(described(ctx, "fourth")()).To(ContainSubstring("on behalf of Job running"))
		Eventually(waitingJobs).WithArguments(first.Gate, namespace).Should(BeEquivalentTo(3))

		Expect(admin.Delete(ctx, created[2])).To(Succeed())
		Eventually(isGone(ctx, created[2])).Should(BeTrue())
		Eventually(waitingJobs).WithArguments(first.Gate, namespace).Should(BeEquivalentTo(2))
		// A replica that begins to lead tells all waiting Jobs.
		first.Stop()
		startOperator(ctx)
		Eventually(described(ctx, "fourth")).Should(ContainSubstring("Waits at place 2 of 2"))
		finish(ctx, created[0])
		finish(ctx, created[1])
		finish(ctx, created[3])
		Expect(startsOf(namespace)).To(Equal([]string{"running", "second", "fourth"}))
	})

	It("is shown to Jobs that waited for an operator once one of them holds the lock", func(ctx context.Context) {
		created := named(ctx, "first", "second", "third")
		Eventually(time.Now).Should(BeTemporally(">", created[2].CreationTimestamp.Add(2*time.Second)), "each has waited for longer than a second")
		startOperator(ctx)
		Eventually(waitingEvents).WithArguments(ctx, namespace).Should(ConsistOf(
			HaveField("Message", ContainSubstring("Waits at place 1 of 2: lock:key is held by ")),
			HaveField("Message", ContainSubstring("Waits at place 2 of 2: lock:key is held by ")),
		))
		for _, job := range created {
			finish(ctx, job)
		}
	})

	It("tells Jobs again after ten minutes what they wait for", func(ctx context.Context) {
		now := &testenv.SteppedClock{}
		startReplicaWith(ctx, leadership.Always(), now)
		held := heldByManifest(ctx, namespace, "key")
		// Its lock must outlast the steps.
		waiting := create(ctx, makeJob(namespace, "waiting", "key", annotated(v1alpha1.LockTTLAnnotation, "1h")))
		Eventually(waitingEvents).WithArguments(ctx, namespace).Should(HaveLen(1))
		now.Step(9 * time.Minute)
		annotate(ctx, "waiting", "example.com/touched=once")
		Consistently(waitingEvents).WithArguments(ctx, namespace).WithTimeout(shortly).Should(HaveLen(1))
		now.Step(2 * time.Minute)
		annotate(ctx, "waiting", "example.com/touched=twice")
		Eventually(waitingEvents).WithArguments(ctx, namespace).Should(HaveLen(2))
		Expect(admin.Delete(ctx, held)).To(Succeed())
		finish(ctx, waiting)
	})

	DescribeTable("tells Jobs that the one before them has no pods, which keeps the lock",
		func(ctx context.Context, prevent func(ctx context.Context, namespace string) obstacle, details string, why OmegaMatcher) {
			prevented := prevent(ctx, namespace)
			now := &testenv.SteppedClock{}
			startReplicaWith(ctx, leadership.Always(), now)
			// Its lock must outlast the steps.
			holder, next := createTwo(ctx, namespace, "key", annotated(v1alpha1.LockTTLAnnotation, "1h"), prevented.change)
			Eventually(func() *bool { return read(ctx, holder).Spec.Suspend }).Should(HaveValue(BeFalse()))
			alive := func() []string {
				GinkgoHelper()
				local := session.New(session.Options{Clock: clock.RealClock{}})
				return describe.GatherHolder(ctx, local, admin, lockOf(ctx, namespace, "key")).Alive()
			}
			Eventually(func() string { return strings.Join(alive()[1:], "\n") }).Should(why)
			const without = "on behalf of Job key, which was started and has no pods: see its events"
			steps := 0
			Eventually(func() string {
				now.Step(10 * time.Second)
				steps++
				annotate(ctx, next.Name, fmt.Sprint("example.com/touched=", steps))
				return eventsOf(ctx, next)()
			}).Should(MatchRegexp("Warning LockHolderWithoutPods: Waits at place 1 of 1: .*" + without))
			Eventually(waitingNote(ctx, next)).Should(HaveSuffix(without))
			Expect(alive()[0]).To(And(HavePrefix("started, has no Pods: Job key is Running, pods: 0 active"), HaveSuffix(details)))

			Expect(holderOf(ctx, namespace, "key")()).To(Equal(holder.UID))
			prevented.end(ctx)
			Eventually(isRunning(ctx, holder)).WithTimeout(5 * time.Minute).Should(BeTrue()) // The Job controller tries less and less often.
			finish(ctx, holder)
			finish(ctx, next)
			Expect(startsOf(namespace)).To(Equal([]string{"key", "key-next"}))
		},
		Entry("for a quota", noPodsByQuota, "", And(ContainSubstring("FailedCreate: Error creating: pods "), ContainSubstring("exceeded quota: no-pods"))),
		// The API server of the tests does not ask for service accounts, which nothing makes here. It refuses pods alike that name
		// another object which is missing.
		Entry("for a missing object, such as a service account", noPodsByName, "",
			And(ContainSubstring("FailedCreate: Error creating: pods "), ContainSubstring("no PriorityClass with name "))),
		Entry("since it is to have none", noPodsByItself, "spec.parallelism is 0", BeEmpty()),
	)

	It("follows changes of priorities", func(ctx context.Context) {
		startOperator(ctx)
		created := named(ctx, "running", "second", "third", "fourth")
		Eventually(isRunning(ctx, created[0])).Should(BeTrue())
		annotate(ctx, "fourth", v1alpha1.LockPriorityAnnotation+"=5")
		annotate(ctx, "second", v1alpha1.LockPriorityAnnotation+"=-5")
		// A hand-off uses the priorities that the operator has seen.
		Eventually(waitingEvents).WithArguments(ctx, namespace).Should(HaveLen(3))
		for _, i := range []int{0, 3, 2, 1} {
			finish(ctx, created[i])
		}
		Expect(startsOf(namespace)).To(Equal([]string{"running", "fourth", "third", "second"}))
	})

	It("follows changes of wait-timeouts", func(ctx context.Context) {
		startOperator(ctx)
		held := heldByManifest(ctx, namespace, "key")
		prolonged := create(ctx, makeJob(namespace, "prolonged", "key", annotated(v1alpha1.LockWaitTimeoutAnnotation, "8s")))
		// Within these seconds, so not by a program that has to start first.
		Expect(admin.Patch(ctx, prolonged.DeepCopy(), client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1h"}}}`, v1alpha1.LockWaitTimeoutAnnotation)))).To(Succeed())
		shortened := named(ctx, "shortened")[0]
		annotate(ctx, "shortened", v1alpha1.LockWaitTimeoutAnnotation+"=9s")
		Eventually(has(ctx, shortened, batchv1.JobFailed)).Should(BeTrue())
		Expect(conditionOf(read(ctx, shortened), batchv1.JobFailed).Reason).To(Equal("LockWaitTimeout"))
		Expect(conditionOf(read(ctx, prolonged), batchv1.JobFailureTarget)).To(BeNil())
		Expect(admin.Delete(ctx, held)).To(Succeed())
		finish(ctx, prolonged)
		Expect(startsOf(namespace)).To(Equal([]string{"prolonged"}))
	})

	It("serves many Jobs that are created in quick succession in that order", func(ctx context.Context) {
		startOperator(ctx)
		const keys, perKey = 4, 5
		var created []*batchv1.Job
		for i := range keys * perKey {
			created = append(created, create(ctx, makeJob(namespace, fmt.Sprintf("job-%02d", i), fmt.Sprintf("key-%d", i%keys), runFor("50ms"))))
		}
		for _, job := range created {
			Eventually(has(ctx, job, batchv1.JobComplete)).Should(BeTrue(), job.Name)
		}
		orders := lockedOrders(namespace)
		Expect(orders).To(HaveLen(keys))
		for key, order := range orders {
			Expect(order).To(HaveLen(perKey), key)
		}
		for i, job := range created[keys:] {
			before, after := read(ctx, created[i]), read(ctx, job)
			Expect(after.Status.StartTime.Time).To(BeTemporally(">=", before.Status.StartTime.Time), job.Name)
		}
	})

	It("holds no Job with the policy skip or fail", func(ctx context.Context) {
		waiting := create(ctx, makeJob(namespace, "waiting", "taken"))
		skipped := create(ctx, makeJob(namespace, "skipped", "taken", annotated(v1alpha1.LockPolicyAnnotation, "skip")))
		first := create(ctx, makeJob(namespace, "first", "free", annotated(v1alpha1.LockPolicyAnnotation, "fail")))
		failed := create(ctx, makeJob(namespace, "failed", "free", annotated(v1alpha1.LockPolicyAnnotation, "fail")))
		// No lock is held, but another Job of the key was created first.
		startOperator(ctx)
		Eventually(has(ctx, skipped, batchv1.JobComplete)).Should(BeTrue())
		Eventually(has(ctx, failed, batchv1.JobFailed)).Should(BeTrue())
		finishAll(ctx, waiting, first)
		Expect(startsOfKey(namespace, "taken")).To(Equal([]string{"waiting"}))
		Expect(startsOfKey(namespace, "free")).To(Equal([]string{"first"}))
	})

	It("is left and entered through the annotation that pauses a Job, or suspend on creation", func(ctx context.Context) {
		startOperator(ctx)
		running := create(ctx, makeJob(namespace, "running", "key", func(job *batchv1.Job) { job.Spec.Suspend = new(false) }))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		paused := named(ctx, "paused")[0]
		suspended := create(ctx, makeJob(namespace, "suspended", "key", func(job *batchv1.Job) { job.Spec.Suspend = new(true) }))
		Expect(suspended.Annotations).To(HaveKeyWithValue(v1alpha1.LockPausedAnnotation, "true"))
		annotate(ctx, "paused", v1alpha1.LockPausedAnnotation+"=true")
		last := named(ctx, "last")[0]
		finish(ctx, running)
		finish(ctx, last)
		Eventually(func() types.UID { return holderOf(ctx, namespace, "key")() }).Should(BeEmpty())
		Expect(startsOf(namespace)).To(Equal([]string{"running", "last"}))

		_, err := kubectl.Run(ctx, "", "patch", "job", "suspended", "-n", namespace, "--type=merge", "-p", `{"spec":{"suspend":false}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(isRunning(ctx, suspended)).Should(BeTrue())
		annotate(ctx, "paused", v1alpha1.LockPausedAnnotation+"-")
		finish(ctx, suspended)
		finish(ctx, paused)
		Expect(startsOf(namespace)).To(Equal([]string{"running", "last", "suspended", "paused"}))
	})

	It("is separate for each function with the scope Function", func(ctx context.Context) {
		startOperator(ctx)
		global := named(ctx, "global")[0]
		scoped := func(name string) *batchv1.Job {
			GinkgoHelper()
			return create(ctx, makeJob(namespace, name, "key", annotated(v1alpha1.LockScopeAnnotation, "Function"),
				annotated(v1alpha1.LockFunctionAnnotation, "billing"), podAnnotated(kubelet.Key, namespace+"/billing")))
		}
		first := scoped("first")
		Eventually(isRunning(ctx, global)).Should(BeTrue())
		Eventually(isRunning(ctx, first)).Should(BeTrue())
		second := scoped("second")
		finishAll(ctx, global, first)
		finish(ctx, second)
		Expect(startsOfKey(namespace, "billing")).To(Equal([]string{"first", "second"}))
	})
})

// obstacle keeps a Job that is changed so from having pods, until it ends.
type obstacle struct {
	change change
	end    func(ctx context.Context)
}

func noPodsByQuota(ctx context.Context, namespace string) obstacle {
	GinkgoHelper()
	none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	Expect(admin.Create(ctx, quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	Expect(admin.Status().Update(ctx, quota)).To(Succeed())
	return obstacle{func(*batchv1.Job) {}, func(ctx context.Context) {
		GinkgoHelper()
		Expect(admin.Delete(ctx, quota)).To(Succeed())
	}}
}

func noPodsByName(_ context.Context, namespace string) obstacle {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Value: 1}
	return obstacle{func(job *batchv1.Job) { job.Spec.Template.Spec.PriorityClassName = class.Name }, func(ctx context.Context) {
		GinkgoHelper()
		Expect(admin.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, class)).To(Succeed()) })
	}}
}

func noPodsByItself(_ context.Context, namespace string) obstacle {
	return obstacle{counted(0, new(int32(1))), func(ctx context.Context) {
		GinkgoHelper()
		_, err := kubectl.Run(ctx, "", "patch", "job", "key", "-n", namespace, "--type=merge", "-p", `{"spec":{"parallelism":1}}`)
		Expect(err).NotTo(HaveOccurred())
	}}
}

// waitingJobs returns what the metric says of a namespace.
func waitingJobs(gate prometheus.Collector, namespace string) float64 {
	GinkgoHelper()
	registry := prometheus.NewRegistry()
	Expect(registry.Register(gate)).To(Succeed())
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != metric.JobsWaiting.Name {
			continue
		}
		for _, series := range family.GetMetric() {
			if series.GetLabel()[0].GetValue() == namespace {
				return series.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// heldByManifest has a user hold the lock of the key.
func heldByManifest(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	held := fixture.Manifest(namespace, key)
	Expect(admin.Create(ctx, held)).To(Succeed())
	return held
}
