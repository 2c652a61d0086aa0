package line_test

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// site is a namespace in which Jobs and callers want one lock.
type site struct {
	namespace, key string
	node           *kubelet.Kubelet

	mu    sync.Mutex
	order []string
}

// newSite starts what runs Jobs, and the controllers as a guest of the façade.
func newSite(ctx context.Context, installed *installation, key string) *site {
	GinkgoHelper()
	s := &site{namespace: environment.Namespace(ctx, "line-"), key: key}
	environment.AllowWorkers(ctx, s.namespace)
	manager, err := environment.StartControllerManager("job-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	clientset, err := kubernetes.NewForConfig(environment.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	s.node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.node.Stop)
	installed.write("token-of-controllers", []byte(tokenOf(ctx, system, controllers, peers.Audience)))
	installed.startControllers(ctx, "--peers-service="+account, "--peers-file="+installed.path("members"),
		"--peers-token-file="+installed.path("token-of-controllers"), "--peers-authority-file="+installed.path("tls.crt"))
	return s
}

// startControllers starts what runs the Jobs.
func (i *installation) startControllers(ctx context.Context, flags ...string) {
	GinkgoHelper()
	identity := environment.Identity("system:serviceaccount:"+system+":"+controllers,
		"system:serviceaccounts", "system:serviceaccounts:"+system, "system:authenticated")
	fixture.StartOperator(ctx, identity.Kubectl, append([]string{
		"--components=controller", "--metrics-bind-address=0", "--audit-log=", "--leader-election-namespace=" + system,
	}, flags...)...)
}

// queue creates a Job as admission leaves it. Its pod runs until [site.finish].
func (s *site) queue(ctx context.Context, name string) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Labels: map[string]string{v1alpha1.LockLabel: "true"}, Finalizers: []string{v1alpha1.LockFinalizer},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: s.key, v1alpha1.LockQueuedTimeAnnotation: jobs.FormatTime(time.Now())},
		},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubelet.Key: s.namespace + "/" + s.key, kubelet.RunFor: "forever"}},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}},
			},
		}},
	}
	Expect(environment.Admin.Client.Create(ctx, job)).To(Succeed())
	return job
}

// hasStarted returns whether a pod of the Job runs.
func (s *site) hasStarted(job *batchv1.Job) func() bool {
	return func() bool {
		return slices.ContainsFunc(s.node.Starts(), func(started kubelet.Started) bool { return started.UID == job.UID })
	}
}

// finish notes that the Job runs, and has its pod end.
func (s *site) finish(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	Eventually(s.hasStarted(job)).WithTimeout(patience).Should(BeTrue(), job.Name)
	s.note(job.Name)
	var pods corev1.PodList
	Expect(environment.Admin.Client.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})).To(Succeed())
	for _, pod := range pods.Items {
		s.node.End(pod.UID)
	}
}

func (s *site) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, name)
}

// call has a caller of the façade wait for the lock, hold it and release it.
func (s *site) call(ctx context.Context, caller *lock.Client, name string) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		held, err := caller.Acquire(ctx, s.key, lock.WithTTL(10*time.Minute))
		Expect(err).NotTo(HaveOccurred())
		s.note(name)
		isOwner, err := held.Owns(ctx) // It takes time in which no Job may run.
		Expect(err).NotTo(HaveOccurred())
		Expect(isOwner).To(BeTrue(), name)
		Expect(held.Release(ctx)).To(Succeed())
	}()
	return ended
}

var _ = Describe("Jobs and callers of the façade", func() {
	DescribeTable("stand in one line, in the order in which they came", func(ctx context.Context, isKilled bool) {
		installed := install(ctx, 2)
		site := newSite(ctx, installed, "report")
		token := tokenOf(ctx, site.namespace, fixture.Worker, audience)
		home, others := installed.home(site.namespace, site.key)
		caller := installed.caller(ctx, others[0], site.namespace, token)
		first, err := caller.Acquire(ctx, site.key, lock.WithTTL(10*time.Minute))
		Expect(err).NotTo(HaveOccurred())

		one := site.queue(ctx, "job-1")
		installed.awaitWaiters(ctx, others[0], site.namespace, site.key, token, 1)
		second := site.call(ctx, caller, "caller-1")
		installed.awaitWaiters(ctx, others[0], site.namespace, site.key, token, 2)
		two := site.queue(ctx, "job-2") // It comes to the line when the first Job has left it.
		third := site.call(ctx, caller, "caller-2")
		installed.awaitWaiters(ctx, others[0], site.namespace, site.key, token, 3)
		if isKilled {
			home.process.Kill()
			installed.awaitWaiters(ctx, others[0], site.namespace, site.key, token, 3)
		}

		Expect(first.Release(ctx)).To(Succeed())
		Eventually(site.hasStarted(one)).WithTimeout(patience).Should(BeTrue())
		installed.awaitWaiters(ctx, others[0], site.namespace, site.key, token, 3)
		site.finish(ctx, one)
		Eventually(second).WithTimeout(patience).Should(BeClosed())
		site.finish(ctx, two)
		Eventually(third).WithTimeout(patience).Should(BeClosed())
		Expect(site.order).To(Equal([]string{"job-1", "caller-1", "job-2", "caller-2"}))
		Expect(site.node.Violations()).To(BeEmpty())
	},
		Entry("while all replicas are there", false),
		Entry("also if the home of the line is killed", true),
	)

	It("do without: Jobs run one after the other while no façade runs", func(ctx context.Context) {
		installed := install(ctx, 0)
		site := newSite(ctx, installed, "report")
		one, two := site.queue(ctx, "job-1"), site.queue(ctx, "job-2")
		site.finish(ctx, one)
		site.finish(ctx, two)
		Expect(site.order).To(Equal([]string{"job-1", "job-2"}))
		Expect(site.node.Violations()).To(BeEmpty())
	})
})
