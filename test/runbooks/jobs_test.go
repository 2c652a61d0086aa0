package runbooks_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("The runbook for an operator that is away while Jobs wait", func() {
	DescribeTable("runs one Job by hand under its lock, and the others when the operator is back", func(ctx context.Context, end string, isInTheWay bool, change func(*batchv1.Job)) {
		namespace := environment.Namespace(ctx, "away-")
		takeAway(ctx, controllers)
		hurried := createJob(ctx, namespace, "billing-report", "2s", change)
		other := createJob(ctx, namespace, "other", "1s")
		// The Job controller says so in its own time.
		Eventually(isSuspended).WithContext(ctx).WithTimeout(patience).WithArguments(hurried).Should(BeTrue())
		book := openRunbook("The operator is away, and Jobs wait or run", "payments", namespace)

		seen := book.run(ctx, root, "get jobs --all-namespaces")
		Expect(seen).To(And(MatchRegexp(`lock-operator-controllers +0/0`), MatchRegexp(`billing-report +Suspended`)))
		back := book.postpone()

		book.run(ctx, root, "kubectl create --namespace")
		lock := fixture.Manifest(namespace, key)
		token := tokenOf(ctx, lock)
		Expect(lock.Spec.Holder).To(Equal(root.Name))
		Expect(book.run(ctx, root, "get pods")).To(MatchRegexp(`billing-report +billing:report +true`))
		const copied = "kubectl patch --local"
		if isInTheWay {
			// A copy of before, which does not end. The commands tell of it, and do not wait for its end.
			left := createJob(ctx, namespace, "billing-report-by-hand", "1s", func(job *batchv1.Job) {
				job.Labels, job.Annotations, job.Spec.Suspend = map[string]string{v1alpha1.LockLabel: "false"}, nil, new(true)
			})
			Expect(book.fail(ctx, root, copied)).To(ContainSubstring(`"billing-report-by-hand" already exists`))
			Expect(startsOf(namespace)).To(BeEmpty())
			Expect(root.Client.Delete(ctx, left, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			Eventually(exists).WithContext(ctx).WithArguments(left).Should(BeFalse())
			book.again()
		}
		Expect(book.run(ctx, root, copied)).To(MatchRegexp(`(?m)^` + end + `$`))
		Expect(startsOf(namespace)).To(Equal([]string{"billing-report-by-hand"}))
		Expect(node.Starts()).To(ContainElement(HaveField("Token", strconv.FormatInt(token, 10))))

		// The operator is back before the lock is released: the Jobs go on waiting.
		back.run(ctx, root, "rollout status")
		Eventually(func(ctx context.Context) (string, error) {
			return root.Kubectl.Run(ctx, "", "events", "--for=job/billing-report", "--namespace="+namespace)
		}).WithContext(ctx).WithTimeout(patience).Should(ContainSubstring(`held by "admin"`))
		Expect(startsOf(namespace)).To(HaveLen(1))

		book.run(ctx, root, "kubectl delete lock")
		Eventually(exists).WithContext(ctx).WithTimeout(patience).WithArguments(hurried).Should(BeFalse())
		Eventually(func() []string { return startsOf(namespace) }).Should(Equal([]string{"billing-report-by-hand", "other"}))
		Eventually(hasEnded).WithContext(ctx).WithTimeout(patience).WithArguments(other).Should(BeTrue())
		Expect(book.run(ctx, root, "get jobs --namespace")).To(MatchRegexp(`other +Complete`))
	},
		Entry("which succeeds", SpecTimeout(specTimeout), "Complete", false, func(*batchv1.Job) {}),
		Entry("whose copy cannot be created at first", SpecTimeout(specTimeout), "Complete", true, func(*batchv1.Job) {}),
		Entry("which fails", SpecTimeout(specTimeout), "Failed", false, func(job *batchv1.Job) { job.Spec.Template.Annotations[kubelet.Fails] = "true" }),
		Entry("whose Pods have its label", SpecTimeout(specTimeout), "Complete", false, func(job *batchv1.Job) {
			job.Spec.Template.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		}),
	)
})

// isSuspended returns whether the Job's status says that it waits.
func isSuspended(ctx context.Context, job *batchv1.Job) bool {
	GinkgoHelper()
	return hasCondition(ctx, job, batchv1.JobSuspended)
}

// hasEnded returns whether the Job is complete.
func hasEnded(ctx context.Context, job *batchv1.Job) bool {
	GinkgoHelper()
	return hasCondition(ctx, job, batchv1.JobComplete)
}

// hasCondition returns whether the condition is true of the Job, as the API server has it.
func hasCondition(ctx context.Context, job *batchv1.Job, condition batchv1.JobConditionType) bool {
	GinkgoHelper()
	Expect(exists(ctx, job)).To(BeTrue())
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

var _ = Describe("The runbook for a running Job that is about to lose its lock", func() {
	It("stops it before, and runs it again when the operator is back", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "losing-")
		job := createJob(ctx, namespace, "billing-report", "forever")
		Eventually(func() []string { return startsOf(namespace) }).Should(HaveLen(1))
		takeAway(ctx, controllers)
		book := openRunbook("A running Job is about to lose its lock", "billing-report.json", filepath.Join(GinkgoT().TempDir(), "job.json"), "payments", namespace)
		Expect(book.run(ctx, root, "get locks")).To(And(
			MatchRegexp(namespace+` +billing--report +Job +billing-report +5m0?s? +20`), MatchRegexp(`billing-report-\S+ .*Running`)))
		book.run(ctx, root, "suspend")
		Expect(exists(ctx, job)).To(BeTrue())
		Expect(job.Annotations).To(HaveKey(v1alpha1.LockPausedAnnotation))
		Consistently(func() []string { return startsOf(namespace) }).WithTimeout(time.Second).Should(HaveLen(1))

		scale(ctx, controllers, 2)
		book.run(ctx, root, "rollout status")
		Eventually(func() []string { return startsOf(namespace) }).Should(Equal([]string{"billing-report", "billing-report"}))

		takeAway(ctx, controllers)
		takeAway(ctx, webhook)
		output, err := shell(ctx, root, "kubectl patch job billing-report --type merge -p '{\"spec\":{\"suspend\":true}}' --namespace "+namespace)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(`failed calling webhook "job.forrst.dev"`))
		book.run(ctx, root, "--cascade=foreground")
		Consistently(func() []string { return startsOf(namespace) }).WithTimeout(time.Second).Should(HaveLen(2))
		scale(ctx, controllers, 2)
		scale(ctx, webhook, 2)
		book.run(ctx, root, "kubectl create")
		Eventually(func() []string { return startsOf(namespace) }).Should(HaveLen(3))
		Expect(book.run(ctx, root, "get lock")).To(ContainSubstring("Job billing-report until 20"))
	})
})

var _ = Describe("The runbook for a namespace that does not terminate", func() {
	It("lets it go when the pods of its Jobs have ended", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "stuck-")
		job := createJob(ctx, namespace, "billing-report", "forever")
		Eventually(func() []string { return startsOf(namespace) }).Should(HaveLen(1))
		var pods corev1.PodList
		Expect(root.Client.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		node.Lose(pods.Items[0].UID)
		archived := acquire(ctx, deployer, namespace, "archive")
		addFinalizer(ctx, archived)
		takeAway(ctx, controllers)
		Expect(root.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Eventually(isDeleted(&pods.Items[0])).WithContext(ctx).WithTimeout(patience).ShouldNot(BeNil())

		book := openRunbook("A namespace does not terminate", "payments", namespace, lockName, archived.Name)
		Expect(book.run(ctx, root, "get namespace")).To(And(
			MatchRegexp(`Job +billing-report`), ContainSubstring(v1alpha1.LockFinalizer), ContainSubstring("example.com/archive"),
			MatchRegexp(`Pod +billing-report-`)))
		book.run(ctx, root, "rollout status")
		Consistently(exists).WithContext(ctx).WithArguments(job).WithTimeout(2*time.Second).Should(BeTrue(), "its pod has not ended")
		book.run(ctx, root, "--force")
		Eventually(exists).WithContext(ctx).WithTimeout(patience).WithArguments(job).Should(BeFalse())
		Eventually(isDeleted(archived)).WithContext(ctx).WithTimeout(patience).ShouldNot(BeNil())
		book.run(ctx, root, "finalizers")
		Expect(exists(ctx, archived)).To(BeFalse())
		book.run(ctx, root, "kubectl wait")
	})

	It("lets it go for who may force a release, when the operator stays away", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "left-")
		started := createJob(ctx, namespace, "started", "forever")
		Eventually(func() []string { return startsOf(namespace) }).Should(HaveLen(1))
		takeAway(ctx, controllers)
		waiting := createJob(ctx, namespace, "billing-report", "1s")
		Expect(root.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		// No pod is left then.
		for _, job := range []*batchv1.Job{started, waiting} {
			Eventually(isDeleted(job)).WithContext(ctx).WithTimeout(patience).ShouldNot(BeNil())
		}

		book := openRunbook("A namespace does not terminate", "payments", namespace)
		Expect(book.run(ctx, root, "get namespace")).To(And(
			MatchRegexp(`Job +billing-report .*`+v1alpha1.LockFinalizer), MatchRegexp(`Job +started .*`+v1alpha1.LockFinalizer), Not(MatchRegexp("(?m)^Pod +"))))
		for range 3 { // The operator is not brought back, no pod is left, and no lock has a finalizer.
			book.postpone()
		}
		const take = "$deleteFromPrimitiveList/finalizers"
		Expect(book.runQuoted(ctx, deployer, take)).To(ContainSubstring("force-release"), "it is a warning")
		Expect(exists(ctx, waiting)).To(BeTrue())
		Expect(waiting.Finalizers).To(ContainElement(v1alpha1.LockFinalizer))
		for _, job := range []*batchv1.Job{waiting, started} {
			book.runQuoted(ctx, root, take, "billing-report", job.Name)
			Eventually(exists).WithContext(ctx).WithTimeout(patience).WithArguments(job).Should(BeFalse())
		}
		book.run(ctx, root, "kubectl wait")
		Expect(startsOf(namespace)).To(Equal([]string{"started"}))
	})
})

// isDeleted returns when the object was deleted that exists still.
func isDeleted(object client.Object) func(context.Context) *metav1.Time {
	return func(ctx context.Context) *metav1.Time {
		GinkgoHelper()
		Expect(exists(ctx, object)).To(BeTrue())
		return object.GetDeletionTimestamp()
	}
}

var _ = Describe("The runbook for a namespace with many locks that terminates slowly", func() {
	It("ends it at once by leaving it out of the audit", SpecTimeout(specTimeout), func(ctx context.Context) {
		// More than the runbook has the user wait for in seconds, each of which costs a second while the webhook hangs.
		const locks = 300
		namespace := environment.Namespace(ctx, "many-")
		// Connections to it are accepted by the kernel and never answered, as those to a frozen process.
		frozen, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(frozen.Close)
		const audit = "kubectl patch validatingwebhookconfiguration lock-operator-audit --type json -p "
		former, err := shell(ctx, root, "kubectl get validatingwebhookconfiguration lock-operator-audit -o jsonpath='{.webhooks[0].clientConfig.url}'")
		Expect(err).NotTo(HaveOccurred())
		setURL := func(ctx context.Context, url string) {
			_, err := shell(ctx, root, fmt.Sprintf(audit+`'[{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": %q}]'`, url))
			Expect(err).NotTo(HaveOccurred())
		}
		setURL(ctx, "https://"+frozen.Addr().String()+"/audit")
		DeferCleanup(setURL, former)
		for i := range locks {
			acquire(ctx, deployer, namespace, fmt.Sprintf("lock-%d", i))
		}
		Expect(root.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())

		book := openRunbook("A namespace with many locks terminates slowly", "payments", namespace)
		seen := strings.Fields(book.run(ctx, root, "sleep"))
		Expect(seen).To(HaveLen(2))
		Expect(strconv.Atoi(seen[1])).To(BeNumerically(">", locks/2))
		book.run(ctx, root, "namespaceSelector")
		book.run(ctx, root, "kubectl wait")
		left, err := shell(ctx, root, "kubectl get validatingwebhookconfiguration lock-operator-audit -o jsonpath='{.webhooks[0].namespaceSelector}'")
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(Equal("{}"))
	})
})
