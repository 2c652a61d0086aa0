package jobs_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("The operator of locked Jobs", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	It("goes on after a restart while Jobs run and wait", func(ctx context.Context) {
		first := startOperator(ctx)
		running := create(ctx, makeJob(namespace, "running", "key"))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		waiting := create(ctx, makeJob(namespace, "waiting", "key"))
		first.Stop()
		held := lockOf(ctx, namespace, "key")
		Expect(holderOf(ctx, namespace, "key")()).To(Equal(running.UID))

		// It ends while no operator runs.
		finish(ctx, running)
		created := create(ctx, makeJob(namespace, "created", "key"))
		startOperator(ctx)
		finish(ctx, waiting)
		finish(ctx, created)
		Expect(startsOf(namespace)).To(Equal([]string{"running", "waiting", "created"}))
		Expect(held.Spec.Owner).NotTo(BeEmpty())
	})

	It("starts a Job that another replica granted the lock before it died", func(ctx context.Context) {
		// What a replica leaves that dies between the grant and the start.
		job := create(ctx, makeJob(namespace, "granted", "key"))
		other := create(ctx, makeJob(namespace, "other", "key"))
		now := v1alpha1.NewTimestamp(time.Now())
		expire := v1alpha1.NewTimestamp(now.Add(5 * time.Minute))
		granted := &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "key"},
			Spec: v1alpha1.LockSpec{
				Key: "key", Scope: v1alpha1.ScopeGlobal, Owner: "left-behind", TTL: &v1alpha1.Duration{Duration: 5 * time.Minute},
				Holder: testenv.OperatorUser, AcquireTime: &now, RenewTime: &now, ExpireTime: &expire,
				HolderRef: &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: other.Name, UID: other.UID},
			},
		}
		Expect(environment.Operator().Client.Create(ctx, granted)).To(Succeed())
		startOperator(ctx)
		finish(ctx, other)
		finish(ctx, job)
		Expect(startsOf(namespace)).To(Equal([]string{"other", "granted"}))
	})

	It("renews the lock of a Job that runs", func(ctx context.Context) {
		startOperator(ctx)
		job := create(ctx, makeJob(namespace, "long", "key", annotated(v1alpha1.LockTTLAnnotation, "12s")))
		waiting := create(ctx, makeJob(namespace, "waiting", "key", annotated(v1alpha1.LockTTLAnnotation, "12s")))
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		acquired := lockOf(ctx, namespace, "key")
		Eventually(func() bool {
			return lockOf(ctx, namespace, "key").Spec.RenewTime.After(acquired.Spec.ExpireTime.Time)
		}).WithTimeout(2 * patience).Should(BeTrue())
		renewed := lockOf(ctx, namespace, "key")
		Expect(renewed.Spec.Owner).To(Equal(acquired.Spec.Owner))
		Expect(startsOf(namespace)).To(Equal([]string{"long"}))
		finish(ctx, job)
		finish(ctx, waiting)
	})

	It("stops and queues again the Jobs whose locks expired in an outage", func(ctx context.Context) {
		first := startOperator(ctx)
		job := create(ctx, makeJob(namespace, "outlived", "key", annotated(v1alpha1.LockTTLAnnotation, "6s")))
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		waiting := create(ctx, makeJob(namespace, "waiting", "key"))
		first.Stop()
		held := lockOf(ctx, namespace, "key")
		Eventually(time.Now).Should(BeTemporally(">", held.Spec.ExpireTime.Time))
		startOperator(ctx)
		Eventually(eventsOf(ctx, job)).Should(ContainSubstring("LockLost"))
		finish(ctx, waiting)
		finish(ctx, job)
	})

	It("starts nothing twice when the leader changes", func(ctx context.Context) {
		first, second := environment.Candidate(namespace), environment.Candidate(namespace)
		leader := startReplica(ctx, first)
		Eventually(first.IsLeader).Should(BeTrue())
		startReplica(ctx, second)
		var created []*batchv1.Job
		for _, name := range []string{"one", "two", "three", "four"} {
			created = append(created, create(ctx, makeJob(namespace, name, "key")))
		}
		finish(ctx, created[0])
		Eventually(isRunning(ctx, created[1])).Should(BeTrue())
		leader.Stop()
		finish(ctx, created[1])
		Eventually(second.IsLeader).Should(BeTrue())
		finish(ctx, created[2])
		finish(ctx, created[3])
		Expect(startsOf(namespace)).To(Equal([]string{"one", "two", "three", "four"}))
	})

	It("makes no request for Jobs that wait but to read the lock of the first again", func(ctx context.Context) {
		var requests counter
		startOperator(ctx, requests.count)
		running := create(ctx, makeJob(namespace, "running", "key"))
		Eventually(isRunning(ctx, running)).Should(BeTrue())
		const waiting = 30
		for i := range waiting {
			create(ctx, makeJob(namespace, "waiting-"+string(rune('a'+i%26))+string(rune('a'+i/26)), "key"))
		}
		// Each is told once for whom it waits.
		Eventually(func() int { return len(waitingEvents(ctx, namespace)) }).Should(Equal(waiting))
		Eventually(func() int { return len(annotatedJobs(ctx, namespace)) }).Should(Equal(waiting))
		before := len(requests.about(namespace))
		Expect(before).To(BeNumerically(">=", 2*waiting), "an event and an annotation each")
		read, reads := "GET /apis/forrst.dev/v1alpha1/namespaces/"+namespace+"/locks/"+lockOf(ctx, namespace, "key").Name, 0
		Consistently(func() []string {
			since := requests.about(namespace)[before:]
			others := slices.DeleteFunc(slices.Clone(since), func(request string) bool { return request == read })
			reads = len(since) - len(others)
			return others
		}).WithTimeout(3 * time.Second).Should(BeEmpty())
		Expect(reads).To(BeNumerically("<=", waiting/10), "the first alone reads, every 3.75 to 5 s")
	})
})

// annotatedJobs returns the Jobs that are told in their annotations for whom they wait.
func annotatedJobs(ctx context.Context, namespace string) []batchv1.Job {
	GinkgoHelper()
	var list batchv1.JobList
	Expect(admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return job.Annotations[v1alpha1.LockWaitingAnnotation] == "" })
}

// counter has the requests of an operator.
type counter struct {
	mu   sync.Mutex
	made []string
}

// about returns the requests so far, as "GET /apis/…", for objects of the namespace. Those that keep an operator
// going, such as reads of the time, are for others.
func (c *counter) about(namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.made), func(request string) bool { return !strings.Contains(request, "/namespaces/"+namespace+"/") })
}

func (c *counter) count(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, c} })
}

type counting struct {
	next    http.RoundTripper
	counter *counter
}

// RoundTrip implements [http.RoundTripper].
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.counter.mu.Lock()
	c.counter.made = append(c.counter.made, request.Method+" "+request.URL.Path)
	c.counter.mu.Unlock()
	return c.next.RoundTrip(request)
}
