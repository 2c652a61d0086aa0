//go:build timing

package outage_test

import (
	"context"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// How long a lock may be free while a caller waits for it, as long as requests get through: while the watch of its replica
// is closed, and whatever an open watch does.
const (
	boundClosed = 2 * time.Second
	boundOpen   = 6 * time.Second
)

var _ = Describe("How soon a waiter is served whose replica has a bad watch", Label("timing"), Ordered, func() {
	var healthy, other replica
	BeforeAll(func(ctx context.Context) {
		operator := operatorConfig()
		healthy, other = startReplica(ctx, operator), startReplica(ctx, operator)
	})

	It("is at once while the watch is healthy", func(ctx context.Context) {
		Expect(served(ctx, healthy, other, "healthy", func() {})).To(BeNumerically("<", time.Second))
	})

	It("is as bounded after connections were refused for long", func(ctx context.Context) {
		// By the end of it, an informer pauses for longer than the bound.
		Expect(served(ctx, healthy, other, "refused", func() { other.refuseFor(ctx, 12*time.Second) })).To(BeNumerically("<", boundClosed))
	})

	It("is as bounded while the watch is stalled, also for long", func(ctx context.Context) {
		DeferCleanup(other.proxy.flow)
		Expect(served(ctx, healthy, other, "stalled", other.proxy.stall)).To(BeNumerically("<", boundOpen))
		Expect(served(ctx, healthy, other, "stalled-for-long", func() {
			Eventually(time.After(12 * time.Second)).WithTimeout(time.Minute).Should(Receive())
		})).To(BeNumerically("<", boundOpen))
	})

	It("is as bounded after the one event was lost", func(ctx context.Context) {
		probing, stopProbe := context.WithCancel(ctx)
		defer stopProbe()
		probed := make(chan time.Duration, 1)
		go func() { probed <- slowestRead(probing, environment.Admin.Client) }()
		took := served(ctx, healthy, other, "lost", func() { other.proxy.loses.Store(true) })
		Expect(other.proxy.loses.Load()).To(BeFalse(), "no event was lost")
		stopProbe()
		// A read and a write lie between, which are not the watch's.
		Expect(took).To(BeNumerically("<", boundOpen+3*<-probed))
	})
})

// The scale of the next spec: small, or that of WATCH_STALL, such as 120s, with a
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

var _ = Describe("How soon locks are passed on by three replicas whose watches are all stalled", Label("timing"), func() {
	It("is bounded", func(ctx context.Context) {
		waiters, keys, stalled := scale()
		replicas := startThree(ctx)
		turns := newTurns(time.Second)
		stop := turns.contend(ctx, replicas, waiters, keys)
		probing, stopProbe := context.WithCancel(ctx)
		probed := make(chan time.Duration, 1)
		go func() { probed <- slowestRead(probing, environment.Admin.Client) }()
		Eventually(turns.count).WithTimeout(time.Minute).Should(BeNumerically(">", keys))
		stall(replicas)
		Eventually(time.After(stalled)).WithTimeout(2 * stalled).Should(Receive())
		stop()
		stopProbe()
		slowest := <-probed
		AddReportEntry("figures", fmt.Sprintf("%d waiters on %d keys, stalled for %s: %d turns, free while wanted for %s at most; "+
			"%d releases were not answered, the slowest of other reads took %s",
			waiters, keys, stalled, turns.count(), turns.longest, turns.unmeasured, slowest), ReportEntryVisibilityAlways)
		// A hand-over takes a read, a write and their queues in the API server, which are not the
		// watch's.
		Expect(turns.longest).To(And(BeNumerically(">", 0), BeNumerically("<", boundOpen+3*slowest)))
		Expect(turns.count()).To(BeNumerically(">", 2*keys))
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
