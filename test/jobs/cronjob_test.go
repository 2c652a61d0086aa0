package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/test/kubelet"
)

var _ = Describe("A CronJob under a lock", func() {
	var namespace string
	var cron *batchv1.CronJob
	// nextRun is when the next run was due.
	var nextRun time.Time
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
		nextRun = time.Now().UTC().Add(-20 * time.Minute)
	})
	AfterEach(expectNoViolations)

	schedule := func(ctx context.Context, policy batchv1.ConcurrencyPolicy) {
		GinkgoHelper()
		template := makeJob(namespace, "", "nightly", podAnnotated(kubelet.StopFor, "2s"))
		cron = &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
			Spec: batchv1.CronJobSpec{
				Schedule: hourlyAt(nextRun.Add(10 * time.Minute)), TimeZone: new("Etc/UTC"), ConcurrencyPolicy: policy, Suspend: new(true),
				JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec},
			},
		}
		Expect(admin.Create(ctx, cron)).To(Succeed())
		cron.Status.LastScheduleTime = &metav1.Time{Time: nextRun}
		Expect(admin.Status().Update(ctx, cron)).To(Succeed())
	}
	// miss has the next run be due some minutes ago; the CronJob controller makes up for
	// it at once.
	miss := func(ctx context.Context) {
		GinkgoHelper()
		nextRun = nextRun.Add(2 * time.Minute)
		change := func(change func()) {
			GinkgoHelper()
			Eventually(func() error {
				if err := admin.Get(ctx, keyOf(cron), cron); err != nil {
					return err
				}
				change()
				return admin.Update(ctx, cron)
			}).Should(Succeed())
		}
		change(func() { cron.Spec.Schedule, cron.Spec.Suspend = hourlyAt(nextRun), new(false) })
		// At a change of the schedule, that controller waits for the next time.
		change(func() {
			metav1.SetMetaDataAnnotation(&cron.ObjectMeta, "example.com/due", nextRun.Format(time.Kitchen))
		})
	}
	// runs returns those that there are, the oldest first.
	runs := func(ctx context.Context) []batchv1.Job {
		GinkgoHelper()
		var list batchv1.JobList
		Expect(admin.List(ctx, &list, inNamespace(namespace))).To(Succeed())
		slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		return list.Items
	}
	onlyRun := func(ctx context.Context, not ...*batchv1.Job) *batchv1.Job {
		GinkgoHelper()
		var found *batchv1.Job
		Eventually(func(g Gomega) {
			all := slices.DeleteFunc(runs(ctx), func(run batchv1.Job) bool {
				return slices.ContainsFunc(not, func(other *batchv1.Job) bool { return other.UID == run.UID })
			})
			g.Expect(all).To(HaveLen(1))
			found = &all[0]
		}).Should(Succeed())
		return found
	}

	It("that replaces its runs starts the new one when the pods of the old one have ended", func(ctx context.Context) {
		held := heldByManifest(ctx, namespace, "nightly")
		schedule(ctx, batchv1.ReplaceConcurrent)
		miss(ctx)
		waiting := onlyRun(ctx)
		miss(ctx)
		running := onlyRun(ctx, waiting)
		Eventually(isGone(ctx, waiting)).Should(BeTrue())
		Expect(startsOf(namespace)).To(BeEmpty())
		Expect(admin.Delete(ctx, held)).To(Succeed())
		Eventually(isRunning(ctx, running)).Should(BeTrue())

		miss(ctx)
		last := onlyRun(ctx, running)
		Eventually(isGone(ctx, running)).Should(BeTrue())
		finish(ctx, last)
		Expect(startsOf(namespace)).To(Equal([]string{running.Name, last.Name}))
	})

	It("that forbids runs at the same time counts one that waits", func(ctx context.Context) {
		held := heldByManifest(ctx, namespace, "nightly")
		schedule(ctx, batchv1.ForbidConcurrent)
		miss(ctx)
		first := onlyRun(ctx)
		miss(ctx)
		Eventually(cronEvents(ctx, namespace)).Should(ContainElement("JobAlreadyActive"))
		Expect(runs(ctx)).To(HaveLen(1))
		Expect(admin.Delete(ctx, held)).To(Succeed())
		finish(ctx, first)
		// What was missed meanwhile is made up for.
		second := onlyRun(ctx, first)
		finish(ctx, second)
		Expect(startsOf(namespace)).To(Equal([]string{first.Name, second.Name}))
	})
})

// hourlyAt returns the schedule for a minute of every hour.
func hourlyAt(t time.Time) string { return fmt.Sprintf("%d * * * *", t.UTC().Minute()) }

// cronEvents returns the reasons of what is told of the CronJobs of a namespace.
func cronEvents(ctx context.Context, namespace string) func() []string {
	return func() []string {
		GinkgoHelper()
		var events corev1.EventList
		Expect(admin.List(ctx, &events, inNamespace(namespace))).To(Succeed())
		var reasons []string
		for i := range events.Items {
			if events.Items[i].InvolvedObject.Kind == "CronJob" {
				reasons = append(reasons, events.Items[i].Reason)
			}
		}
		return reasons
	}
}
