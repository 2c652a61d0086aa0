package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("Locked Jobs while the webhook is away", func() {
	var namespace string
	var isAway bool
	away := func() {
		GinkgoHelper()
		admission.Stop()
		isAway = true
	}
	back := func(ctx context.Context) {
		GinkgoHelper()
		admission.Start(ctx)
		isAway = false
	}
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(func(ctx context.Context) {
		if isAway {
			back(ctx)
		}
		expectNoViolations(ctx)
	})

	It("can neither be created nor changed, and the existing ones run one after the other", func(ctx context.Context) {
		startOperator(ctx)
		running := create(ctx, makeJob(namespace, "running", "key", annotated(v1alpha1.LockTTLAnnotation, "12s")))
		suspended := create(ctx, makeJob(namespace, "suspended", "other"))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		Eventually(isRunning(ctx, suspended)).Should(BeTrue())
		second := create(ctx, makeJob(namespace, "second", "key", podAnnotated(kubelet.StopFor, "1s")))
		third := create(ctx, makeJob(namespace, "third", "key"))
		discarded := create(ctx, makeJob(namespace, "discarded", "key"))
		acquired := lockOf(ctx, namespace, "key")
		away()

		unavailable := MatchError(ContainSubstring(`failed calling webhook "job.forrst.dev"`))
		Expect(admin.Create(ctx, makeJob(namespace, "refused", "key"))).To(unavailable)
		for _, change := range [][]string{
			{"patch", "job", "suspended", "--type=merge", "-p", `{"spec":{"suspend":true}}`},
			{"patch", "job", "second", "--type=merge", "-p", `{"spec":{"suspend":false}}`},
			{"patch", "job", "second", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`},
			{"annotate", "job", "second", v1alpha1.LockPriorityAnnotation + "=3"},
			{"label", "job", "second", v1alpha1.LockLabel + "-"},
		} {
			_, err := kubectl.Run(ctx, "", append(change, "-n", namespace)...)
			Expect(err).To(unavailable, change[0])
		}
		ordinary := makeJob(namespace, "ordinary", "none", podAnnotated(kubelet.Key, ""))
		ordinary.Labels = nil
		delete(ordinary.Annotations, v1alpha1.LockKeyAnnotation)
		create(ctx, ordinary)
		Eventually(isRunning(ctx, ordinary)).Should(BeTrue())

		// The operator need not ask the webhook: it renews, releases, starts and finalizes.
		Eventually(func() bool {
			return lockOf(ctx, namespace, "key").Spec.RenewTime.After(acquired.Spec.AcquireTime.Time)
		}).Should(BeTrue())
		finish(ctx, running)
		Eventually(func() []string { return read(ctx, running).Finalizers }).Should(BeEmpty())
		Eventually(isRunning(ctx, second)).Should(BeTrue())
		// Neither do deletions, in whatever way.
		Expect(admin.Delete(ctx, discarded, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(admin.Delete(ctx, second, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(isGone(ctx, discarded)).Should(BeTrue())
		Eventually(isGone(ctx, second)).Should(BeTrue())
		Eventually(isRunning(ctx, third)).Should(BeTrue())

		back(ctx)
		last := create(ctx, makeJob(namespace, "last", "key"))
		finishAll(ctx, third, suspended)
		finish(ctx, last)
		Expect(startsOfKey(namespace, "key")).To(Equal([]string{"running", "second", "third", "last"}))
	})

	It("are taken up by an operator that begins to lead", func(ctx context.Context) {
		first := create(ctx, makeJob(namespace, "first", "key"))
		second := create(ctx, makeJob(namespace, "second", "key"))
		away()
		startOperator(ctx)
		finish(ctx, first)
		finish(ctx, second)
		Expect(startsOf(namespace)).To(Equal([]string{"first", "second"}))
	})
})
