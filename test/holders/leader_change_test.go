package holders_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// callers acquire, renew and release locks as those of a façade do, and measure how long it takes.
type callers struct {
	engine    *engine.Engine
	namespace string
	// interval is that between the calls, which wait for none before them.
	interval time.Duration
}

// startCallers runs their engine until the spec ends.
func startCallers(ctx context.Context, namespace string, interval time.Duration) *callers {
	GinkgoHelper()
	httpClient, err := rest.HTTPClientFor(environment.Operator().Config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(environment.Operator().Config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	made, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits()})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- made.Start(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).NotTo(HaveOccurred())
	})
	return &callers{engine: made, namespace: namespace, interval: interval}
}

// measure has the callers work for a while, and returns the 99th percentile of the times that
// acquires and renewals took.
func (c *callers) measure(ctx context.Context, during time.Duration) (acquires, renewals time.Duration) {
	GinkgoHelper()
	var mu sync.Mutex
	var taken [2][]time.Duration
	timed := func(kind int, do func() error) {
		defer GinkgoRecover()
		began := time.Now()
		Expect(do()).To(Succeed())
		mu.Lock()
		defer mu.Unlock()
		taken[kind] = append(taken[kind], time.Since(began))
	}
	var working sync.WaitGroup
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for number := range int(during / c.interval) {
		<-ticker.C
		request := lock.Request{Acquisition: rules.Acquisition{Key: fmt.Sprintf("call-%d", number), Owner: "token", Holder: "caller"}}
		key, proof := request.FullKey(), lock.Proof{Owner: "token", Holder: "caller"}
		working.Go(func() {
			timed(0, func() error { _, err := c.engine.Acquire(ctx, c.namespace, request); return err })
			timed(1, func() error { _, err := c.engine.Renew(ctx, c.namespace, key, proof, 0); return err })
			defer GinkgoRecover()
			Expect(c.engine.Release(ctx, c.namespace, key, proof)).To(Succeed())
		})
	}
	working.Wait()
	percentile := func(times []time.Duration) time.Duration {
		slices.Sort(times)
		return times[len(times)*99/100]
	}
	return percentile(taken[0]), percentile(taken[1])
}

var _ = Describe("A change of leader", func() {
	It("does not stop callers, and looks after holders at a bounded rate", func(ctx context.Context) {
		changeLeader(ctx, 120, 3*time.Second, 100*time.Millisecond)
	})
})

// latencies are 99th percentiles.
type latencies struct{ acquires, renewals time.Duration }

// changeLeader has callers work for a while before and after a change of the leader that looks after so many holders.
func changeLeader(ctx context.Context, count int, during, interval time.Duration) (before, after latencies) {
	GinkgoHelper()
	namespace, others := newNamespace(ctx), newNamespace(ctx)
	inParallel(count, func(i int) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("worker-%d", i)}, Spec: template()}
		Expect(admin.Create(ctx, pod)).To(Succeed())
		request := rules.Acquisition{Key: pod.Name, Owner: "token", Holder: "alice", TTL: time.Hour, HolderRef: podRef(pod)}
		Expect(operator.Create(ctx, rules.Grant(namespace, request, rules.DefaultLimits(), time.Now()))).To(Succeed())
	})
	first, second := environment.Candidate("change-of-leader"), environment.Candidate("change-of-leader")
	leading, resign := context.WithCancel(ctx)
	defer resign()
	go func() { _ = first.Start(leading) }()
	Eventually(first.IsLeader).Should(BeTrue())
	counted := &requests{}
	manager, err := environment.NewManagerFor(func(config *rest.Config) {
		config.Wrap(func(base http.RoundTripper) http.RoundTripper {
			counted.RoundTripper = base
			return counted
		})
	})
	Expect(err).NotTo(HaveOccurred())
	Expect((&expiry.Reconciler{
		Client: manager.GetClient(), Clock: clock.RealClock{}, Leadership: second,
	}).SetupWithManager(manager)).To(Succeed())
	runOperator(ctx, manager, second, func(*holders.Reconciler) {})
	Expect(manager.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	callers := startCallers(ctx, others, interval)
	callers.measure(ctx, 2*time.Second) // Connections are open, and caches are warm.

	before.acquires, before.renewals = callers.measure(ctx, during)
	began, madeBefore := time.Now(), counted.others.Load()+counted.watches.Load()
	resign()
	Eventually(second.IsLeader).Should(BeTrue())
	after.acquires, after.renewals = callers.measure(ctx, during)
	made := counted.others.Load() + counted.watches.Load() - madeBefore
	AddReportEntry("p99 before and after", fmt.Sprintf("%d holders: acquires %s, then %s; renewals %s, then %s; %d requests about Pods in %s",
		count, before.acquires, after.acquires, before.renewals, after.renewals, made, time.Since(began)), ReportEntryVisibilityAlways)
	// Each look is a watch and a read; 40 of them at once, and 40 a second.
	Expect(made).To(BeNumerically("<=", 2*40*(time.Since(began).Seconds()+2)))

	// A holder that ended is found, whether or not it has a watch.
	for _, name := range []string{"worker-0", fmt.Sprintf("worker-%d", count-1)} {
		held := stored(ctx, namespace, name)
		remove(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		Eventually(exists(ctx, held)).Should(BeFalse())
	}
	return before, after
}
