package outage_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// served returns how long after its release through the healthy replica a lock went to a waiter of the other one. Fail runs while
// the caller waits. Without what is tested here, nothing would serve it for half an hour.
func served(ctx context.Context, healthy, other replica, key string, fail func()) time.Duration {
	GinkgoHelper()
	Expect(take(ctx, healthy, key, "holder", 0)).To(Succeed())
	answered := make(chan error, 1)
	go func() { answered <- take(ctx, other, key, "waiter", lock.WaitForever) }()
	Consistently(answered).WithTimeout(time.Second).ShouldNot(Receive())
	fail()
	Expect(give(ctx, healthy, key, "holder")).To(Succeed())
	released := time.Now()
	Eventually(answered).WithTimeout(time.Minute).WithPolling(time.Millisecond).Should(Receive(BeNil()))
	took := time.Since(released)
	Expect(give(ctx, other, key, "waiter")).To(Succeed())
	GinkgoWriter.Printf("served %v after the release\n", took)
	return took
}

// refuseFor has the connections of a replica refused for so long.
func (r replica) refuseFor(ctx context.Context, length time.Duration) {
	GinkgoHelper()
	r.proxy.refuse()
	Eventually(time.After(length)).WithTimeout(2 * length).Should(Receive())
	r.proxy.listen(ctx)
}

var _ = Describe("A waiter whose replica has a bad watch", Ordered, func() {
	var healthy, other replica
	BeforeAll(func(ctx context.Context) {
		operator := operatorConfig()
		healthy, other = startReplica(ctx, operator), startReplica(ctx, operator)
	})

	It("is served while the watch is healthy", func(ctx context.Context) {
		served(ctx, healthy, other, "healthy", func() {})
	})

	It("is served after connections were refused", func(ctx context.Context) {
		served(ctx, healthy, other, "refused", func() { other.refuseFor(ctx, 3*time.Second) })
	})

	It("is served while the watch is stalled without an error", func(ctx context.Context) {
		DeferCleanup(other.proxy.flow)
		served(ctx, healthy, other, "stalled", other.proxy.stall)
	})

	It("is served after the one event was lost", func(ctx context.Context) {
		served(ctx, healthy, other, "lost", func() { other.proxy.loses.Store(true) })
		Eventually(other.proxy.loses.Load).Should(BeFalse(), "no event was lost")
	})

	It("is told that nothing is known if the API server cannot be reached", func(ctx context.Context) {
		Expect(take(ctx, healthy, "unknown", "holder", 0)).To(Succeed())
		other.proxy.refuse()
		DeferCleanup(func(ctx context.Context) { other.proxy.listen(ctx) })
		Expect(take(ctx, other, "unknown", "waiter", 5*time.Second)).To(MatchError(lock.ErrUnavailable))
	})
})

var _ = Describe("Three replicas whose watches are all stalled", func() {
	It("pass every lock on", func(ctx context.Context) {
		const waiters, keys = 24, 6
		replicas := startThree(ctx)
		turns := newTurns(100 * time.Millisecond)
		stop := turns.contend(ctx, replicas, waiters, keys)
		defer stop()
		Eventually(turns.count).WithTimeout(patience).Should(BeNumerically(">", keys))
		stall(replicas)
		before := turns.count()
		// The first of them may have been on their way.
		Eventually(turns.count).WithTimeout(patience).Should(BeNumerically(">", before+3*keys))
	})
})

func operatorConfig() *rest.Config {
	GinkgoHelper()
	config := environment.Operator().Config
	config.QPS = -1
	return config
}

func take(ctx context.Context, through replica, key, owner string, wait time.Duration) error {
	_, err := through.Acquire(ctx, "default", lock.Request{
		Acquisition: rules.Acquisition{Key: key, Owner: owner, Holder: "worker", TTL: 30 * time.Minute}, Wait: wait,
	})
	return err
}

func give(ctx context.Context, through replica, key, owner string) error {
	request := rules.Acquisition{Key: key}
	return through.Release(ctx, "default", request.FullKey(), lock.Proof{Owner: owner})
}
