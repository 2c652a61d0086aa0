package jobs_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

// probing tries a lock that a policy of the suite refuses.
func probing(namespace string, ttl time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		return admin.Create(ctx, fixture.Manifest(namespace, "probe", fixture.TTL(ttl)), client.DryRunAll)
	}
}

var _ = Describe("A policy of the cluster for locks", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	It("lets Jobs run under the keys that it lists for them, and tells others why they wait", func(ctx context.Context) {
		fixture.BindPolicy(ctx, admin, "lock-operator-keys", namespace, map[string]string{"holders": "nightly: jobs\nbilling: user:admin\nbilling: group:system:serviceaccounts"}, probing(namespace, time.Millisecond))
		allowed, refused := create(ctx, makeJob(namespace, "allowed", "nightly:report")), create(ctx, makeJob(namespace, "refused", "billing:report"))
		Eventually(isRunning(ctx, allowed)).Should(BeTrue())
		Eventually(eventsOf(ctx, refused)).Should(And(ContainSubstring("Warning LockRefused: Leaves the lock to others"),
			ContainSubstring(`Jobs may not hold the key "billing:report" in this namespace, since keys that begin with "billing:" are for other holders`)))
		Eventually(waitingNote(ctx, refused)).Should(MatchRegexp(`^refused at \S+Z, tried again after \S+Z: the cluster refuses the lock: .*Jobs may not hold the key`))
		Expect(startsOf(namespace)).To(Equal([]string{"allowed"}))
		Expect(lockOf(ctx, namespace, "billing:report")).To(BeNil())
		fails := create(ctx, makeJob(namespace, "fails", "billing:report", annotated(v1alpha1.LockPolicyAnnotation, "fail")))
		Eventually(has(ctx, fails, batchv1.JobFailed)).Should(BeTrue())
		Expect(conditionOf(read(ctx, fails), batchv1.JobFailed)).To(HaveField("Reason", "LockRefused"))
		finish(ctx, allowed)
	})

	It("bounds the ttl of Jobs, lets the next one start, and leaves the running one alone", func(ctx context.Context) {
		running := create(ctx, makeJob(namespace, "running", "shared", annotated(v1alpha1.LockTTLAnnotation, "30s")))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		fixture.BindPolicy(ctx, admin, "lock-operator-durations", namespace, map[string]string{"maxTTL": "31s"}, probing(namespace, 23*time.Hour))
		fixture.BindPolicy(ctx, admin, "lock-operator-keys", namespace, map[string]string{"holders": "shared jobs"}, probing(namespace, time.Millisecond))
		long := create(ctx, makeJob(namespace, "long", "shared", annotated(v1alpha1.LockTTLAnnotation, "32s")))
		short := create(ctx, makeJob(namespace, "short", "shared", annotated(v1alpha1.LockTTLAnnotation, "31s")))
		renewed := lockOf(ctx, namespace, "shared").Spec.RenewTime
		Eventually(func() bool { return renewed.Before(lockOf(ctx, namespace, "shared").Spec.RenewTime.Time) }).Should(BeTrue())
		finish(ctx, running)
		Eventually(eventsOf(ctx, long)).Should(ContainSubstring("spec.ttl: 32s is more than the 31s"))
		Eventually(isRunning(ctx, short)).Should(BeTrue())
		finish(ctx, short)
		Expect(startsOf(namespace)).To(Equal([]string{"running", "short"}))
	})
})

var _ = Describe("A namespace that lets only users with a right to locks have Jobs under locks", func() {
	var namespace string
	var creator fixture.Identity
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		creator = environment.Identity("job-creator-"+namespace, "system:authenticated")
		_, err := kubectl.Run(ctx, "", "create", "role", "job-creator", "-n", namespace, "--verb=create,update,patch,get", "--resource=jobs.batch,cronjobs.batch")
		Expect(err).NotTo(HaveOccurred())
		_, err = kubectl.Run(ctx, "", "create", "rolebinding", "job-creator", "-n", namespace, "--role=job-creator", "--user="+creator.Name)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return creator.Client.Create(ctx, makeJob(namespace, "before", "before"), client.DryRunAll)
		}).Should(Succeed())
	})
	restrict := func(ctx context.Context) {
		GinkgoHelper()
		_, err := kubectl.Run(ctx, "", "label", "namespace", namespace, "forrst.dev/job-locks=restricted")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return creator.Client.Create(ctx, makeJob(namespace, "probe", "probe"), client.DryRunAll)
		}).WithTimeout(fixture.PolicyTimeout).Should(MatchError(ContainSubstring("lock-operator-job-creators")))
	}
	const wanting = "the label forrst.dev/lock needs the right to create locks.forrst.dev in namespace "

	It("refuses the others, who may have Jobs without a lock, and lets them in with the right", func(ctx context.Context) {
		restrict(ctx)
		Expect(creator.Client.Create(ctx, makeJob(namespace, "job", "key"))).To(MatchError(And(
			ContainSubstring(wanting + namespace + `, which "` + creator.Name + `" lacks; remove the label to run without a lock, or ask for`))))
		Expect(creator.Client.Create(ctx, makeCronJob(makeJob(namespace, "cron", "key")))).To(MatchError(ContainSubstring(wanting)))
		without := func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil }
		Expect(creator.Client.Create(ctx, makeJob(namespace, "without", "key", without), client.DryRunAll)).To(Succeed())
		off := makeJob(namespace, "off", "key", func(job *batchv1.Job) { job.Labels[v1alpha1.LockLabel] = "false" })
		Expect(creator.Client.Create(ctx, off, client.DryRunAll)).To(Succeed())
		Expect(admin.Create(ctx, makeJob(namespace, "admin", "key"), client.DryRunAll)).To(Succeed())

		_, err := kubectl.Run(ctx, "", "create", "role", "locker", "-n", namespace, "--verb=create", "--resource=locks.forrst.dev")
		Expect(err).NotTo(HaveOccurred())
		_, err = kubectl.Run(ctx, "", "create", "rolebinding", "locker", "-n", namespace, "--role=locker", "--user="+creator.Name)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { return creator.Client.Create(ctx, makeJob(namespace, "job", "key"), client.DryRunAll) }).Should(Succeed())
		Expect(creator.Client.Create(ctx, makeCronJob(makeJob(namespace, "cron", "key")))).To(Succeed())
	})

	It("lets a CronJob of before run and be suspended, and not ask for another lock", func(ctx context.Context) {
		runs := makeCronJob(makeJob(namespace, "cron", "key"))
		runs.Spec.Schedule, runs.Spec.Suspend = "* * * * *", new(false)
		Expect(creator.Client.Create(ctx, runs)).To(Succeed())
		plain := makeCronJob(makeJob(namespace, "plain", "key", func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil }))
		Expect(creator.Client.Create(ctx, plain)).To(Succeed())
		restrict(ctx)

		// As the CronJob controller of Kubernetes creates it, which has no right to locks.
		_, err := kubectl.Run(ctx, "", "create", "rolebinding", "controllers", "-n", namespace, "--role=job-creator",
			"--user=system:serviceaccount:kube-system:cronjob-controller", "--user=system:kube-controller-manager")
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"system:serviceaccount:kube-system:cronjob-controller", "system:kube-controller-manager"} {
			controller := environment.Identity(name)
			Eventually(func() error { return controller.Client.Create(ctx, makeJob(namespace, "run", "key"), client.DryRunAll) }).Should(Succeed())
		}
		change := func(cron *batchv1.CronJob, patch string) error {
			_, err := creator.Kubectl.Run(ctx, "", "patch", "cronjob", cron.Name, "-n", namespace, "--type=merge", "-p", patch)
			return err
		}
		Expect(change(runs, `{"spec":{"suspend":true}}`)).To(Succeed())
		Expect(change(runs, `{"spec":{"jobTemplate":{"metadata":{"annotations":{"forrst.dev/lock-key":"another"}}}}}`)).To(MatchError(ContainSubstring(wanting)))
		Expect(change(plain, `{"spec":{"jobTemplate":{"metadata":{"labels":{"forrst.dev/lock":"true"},"annotations":{"forrst.dev/lock-key":"key"}}}}}`)).
			To(MatchError(ContainSubstring(wanting)))
		Expect(change(runs, `{"spec":{"jobTemplate":{"metadata":{"labels":null,"annotations":null}}}}`)).To(Succeed())
	})
})
