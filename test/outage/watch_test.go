package outage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

// bound is how long a lock may be free while a caller waits for it, whatever the watches do, as
// long as requests get through.
const bound = 2 * time.Second

var _ = Describe("A waiter whose replica has a bad watch", Ordered, func() {
	var (
		environment    *fixture.Cluster
		healthy, other replica
	)
	BeforeAll(func(ctx context.Context) {
		environment = fixture.Start(ctx)
		operator := operatorConfig(environment)
		healthy, other = startReplica(ctx, operator), startReplica(ctx, operator)
	})

	// served returns how long after its release through the healthy replica a lock went to a
	// waiter of the other one. Fail runs while the caller waits.
	served := func(ctx context.Context, key string, fail func()) time.Duration {
		GinkgoHelper()
		Expect(take(ctx, healthy, key, "holder", 0)).To(Succeed())
		answered := make(chan error, 1)
		go func() { answered <- take(ctx, other, key, "waiter", lock.WaitForever) }()
		Consistently(answered).WithTimeout(time.Second).ShouldNot(Receive())
		fail()
		Expect(give(ctx, healthy, key, "holder")).To(Succeed())
		released := time.Now()
		Eventually(answered).WithTimeout(2 * time.Minute).WithPolling(time.Millisecond).Should(Receive(BeNil()))
		took := time.Since(released)
		Expect(give(ctx, other, key, "waiter")).To(Succeed())
		GinkgoWriter.Printf("served %v after the release\n", took)
		return took
	}

	It("is served at once while the watch is healthy", func(ctx context.Context) {
		Expect(served(ctx, "healthy", func() {})).To(BeNumerically("<", time.Second))
	})

	It("is served after connections were refused for long", func(ctx context.Context) {
		// By the end of it, an informer pauses for longer than the bound.
		const outage = 12 * time.Second
		Expect(served(ctx, "refused", func() {
			other.proxy.refuse()
			Eventually(time.After(outage)).WithTimeout(2 * outage).Should(Receive())
			other.proxy.listen(ctx)
		})).To(BeNumerically("<", bound))
	})

	It("is served while the watch is stalled without an error, and the watch recovers", func(ctx context.Context) {
		DeferCleanup(other.proxy.flow)
		Expect(served(ctx, "stalled", other.proxy.stall)).To(BeNumerically("<", bound))
		Expect(served(ctx, "stalled-for-long", func() {
			Eventually(func() time.Duration { return other.WatchState().BehindFor }).WithTimeout(30 * time.Second).Should(BeNumerically(">", 5*time.Second))
		})).To(BeNumerically("<", bound))
	})

	It("is served after the one event was lost, whichever replica renews the heartbeat", func(ctx context.Context) {
		probing, stopProbe := context.WithCancel(ctx)
		defer stopProbe()
		probed := make(chan time.Duration, 1)
		go func() { probed <- slowestRead(probing, environment.Admin.Client) }()
		var longest time.Duration
		for i := range 4 {
			differing := peace(healthy, other)
			longest = max(longest, served(ctx, fmt.Sprintf("lost-%d", i), func() { other.proxy.loses.Store(true) }))
			Expect(other.proxy.loses.Load()).To(BeFalse(), "no event was lost")
			Expect(healthy.WatchState().Differing + other.WatchState().Differing).To(BeNumerically(">", differing))
		}
		stopProbe()
		// Two heartbeats, two reads and a write lie between, which are not the watch's.
		Expect(longest).To(BeNumerically("<", bound+3*<-probed))
	})

	It("finds no difference between healthy watches", func(ctx context.Context) {
		differing := peace(healthy, other)
		for i := range 300 {
			Expect(take(ctx, healthy, "busy", fmt.Sprint(i), 0)).To(Succeed())
			Expect(give(ctx, healthy, "busy", fmt.Sprint(i))).To(Succeed())
		}
		Consistently(func() int { return other.WatchState().Differing + healthy.WatchState().Differing }).
			WithTimeout(3 * time.Second).Should(Equal(differing))
	})

	It("is told that nothing is known if the API server cannot be reached", func(ctx context.Context) {
		Eventually(other.isPaced).WithTimeout(30 * time.Second).Should(BeTrue())
		Expect(take(ctx, healthy, "unknown", "holder", 0)).To(Succeed())
		other.proxy.refuse()
		DeferCleanup(func(ctx context.Context) { other.proxy.listen(ctx) })
		Expect(take(ctx, other, "unknown", "waiter", 5*time.Second)).To(MatchError(lock.ErrUnavailable))
	})
})

// peace waits until both watches are trusted and have not differed for a while, and returns how often
// they have.
func peace(replicas ...replica) (differing int) {
	GinkgoHelper()
	since := time.Now()
	Eventually(func() time.Duration {
		now, arePaced := 0, true
		for _, replica := range replicas {
			now += replica.WatchState().Differing
			arePaced = arePaced && replica.isPaced()
		}
		if now != differing || !arePaced {
			differing, since = now, time.Now()
		}
		return time.Since(since)
	}).WithTimeout(time.Minute).Should(BeNumerically(">", 4*time.Second))
	return differing
}

// The scale of the next spec: small in the suite, or that of WATCH_STALL, such as 120s, with a
// thousand waiters.
func scale() (waiters, keys int, stalled time.Duration) {
	GinkgoHelper()
	text := os.Getenv("WATCH_STALL")
	if text == "" {
		return 120, 12, 12 * time.Second
	}
	stalled, err := time.ParseDuration(text)
	Expect(err).NotTo(HaveOccurred())
	return 1000, 50, stalled
}

var _ = Describe("Three replicas whose watches are all stalled", func() {
	It("pass every lock on in time", func(ctx context.Context) {
		waiters, keys, stalled := scale()
		environment := fixture.Start(ctx)
		operator := operatorConfig(environment)
		replicas := []replica{startReplica(ctx, operator), startReplica(ctx, operator), startReplica(ctx, operator)}
		turns := newTurns()
		waiting, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				defer GinkgoRecover()
				for waiting.Err() == nil {
					turns.take(waiting, replicas[i%3], replicas[(i/3)%3], fmt.Sprintf("key-%d", i%keys), fmt.Sprint(i))
				}
			})
		}
		probing, stopProbe := context.WithCancel(ctx)
		probed := make(chan time.Duration, 1)
		go func() { probed <- slowestRead(probing, environment.Admin.Client) }()
		Eventually(turns.count).WithTimeout(time.Minute).Should(BeNumerically(">", keys))
		for _, replica := range replicas {
			replica.proxy.stall()
			DeferCleanup(replica.proxy.flow)
		}
		Eventually(time.After(stalled)).WithTimeout(2 * stalled).Should(Receive())
		stop()
		all.Wait()
		stopProbe()
		slowest := <-probed
		AddReportEntry("figures", fmt.Sprintf("%d waiters on %d keys, stalled for %s: %d turns, free while wanted for %s at most; "+
			"%d releases were not answered, the slowest of other reads took %s",
			waiters, keys, stalled, turns.count(), turns.longest, turns.unmeasured, slowest), ReportEntryVisibilityAlways)
		// A hand-over takes a read, a write and their queues in the API server, which are not the
		// watch's.
		Expect(turns.longest).To(And(BeNumerically(">", 0), BeNumerically("<", bound+3*slowest)))
		Expect(turns.count()).To(BeNumerically(">", 2*keys))
	})
})

// work is how long a caller holds a lock.
const work = time.Second

// turns knows for how long each lock was free at most while callers waited for it, which they do
// all the time.
type turns struct {
	mu      sync.Mutex
	freed   map[string]time.Time
	longest time.Duration
	taken   int
	// unmeasured counts releases that the API server did not answer.
	unmeasured int
}

func newTurns() *turns { return &turns{freed: map[string]time.Time{}} }

func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// take waits for a lock through one replica and releases it through another.
func (t *turns) take(ctx context.Context, through, releaser replica, key, owner string) {
	err := take(ctx, through, key, owner, lock.WaitForever)
	if errors.Is(err, context.Canceled) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	t.mu.Lock()
	if freed, ok := t.freed[key]; ok {
		t.longest = max(t.longest, time.Since(freed))
	}
	delete(t.freed, key)
	t.taken++
	t.mu.Unlock()
	Eventually(time.After(work)).WithTimeout(time.Minute).Should(Receive())
	t.mu.Lock()
	t.freed[key] = time.Now()
	t.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	for err = give(ctx, releaser, key, owner); errors.Is(err, lock.ErrUnavailable); err = give(ctx, releaser, key, owner) {
		t.mu.Lock()
		delete(t.freed, key) // It is not known when it became free: the request did not get through.
		t.unmeasured++
		t.mu.Unlock()
	}
	if !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) {
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("An operator whose API server is away at the start", func() {
	It("becomes ready when it is there", func(ctx context.Context) {
		environment := fixture.Start(ctx)
		identity := environment.Operator().Kubectl
		Expect(environment.APIServer().Stop()).To(Succeed())
		facade, isFacadeReady := fixture.LaunchOperator(ctx, identity, "--components=facade",
			"--facade-auth=none", "--facade-bind-address="+fixture.FreeAddress(ctx))
		whole, isWholeReady := fixture.LaunchOperator(ctx, identity, "--components=facade,controller",
			"--facade-auth=none", "--facade-bind-address="+fixture.FreeAddress(ctx))
		Consistently(facade.ExitCode).WithTimeout(5 * time.Second).Should(Equal(-1))
		Expect(whole.ExitCode()).To(Equal(-1))
		Expect(environment.APIServer().Start()).To(Succeed())
		for _, isReady := range []func(context.Context) (int, error){isFacadeReady, isWholeReady} {
			Eventually(isReady).WithContext(ctx).WithTimeout(30 * time.Second).Should(Equal(http.StatusOK))
		}
	})
})

// slowestRead reads all the time until ctx ends, and returns how long the slowest read took: how
// fast the API server is without any watch.
func slowestRead(ctx context.Context, reader client.Reader) (slowest time.Duration) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for ctx.Err() == nil {
		begun := time.Now()
		_ = reader.Get(ctx, client.ObjectKey{Namespace: "default", Name: "none"}, &v1alpha1.Lock{})
		slowest = max(slowest, time.Since(begun))
		<-pause.C
	}
	return slowest
}

func operatorConfig(environment *fixture.Cluster) *rest.Config {
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
