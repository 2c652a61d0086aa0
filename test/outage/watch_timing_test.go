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

// bound is how long a lock may be free while a caller waits for it, whatever the watches do, as
// long as requests get through.
const bound = 2 * time.Second

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
		Expect(served(ctx, healthy, other, "refused", func() { other.refuseFor(ctx, 12*time.Second) })).To(BeNumerically("<", bound))
	})

	It("is as bounded while the watch is stalled, also for long", func(ctx context.Context) {
		DeferCleanup(other.proxy.flow)
		Expect(served(ctx, healthy, other, "stalled", other.proxy.stall)).To(BeNumerically("<", bound))
		Expect(served(ctx, healthy, other, "stalled-for-long", func() {
			Eventually(func() time.Duration { return other.WatchState().BehindFor }).WithTimeout(30 * time.Second).Should(BeNumerically(">", 5*time.Second))
		})).To(BeNumerically("<", bound))
	})

	It("is as bounded after the one event was lost, whichever replica renews the heartbeat", func(ctx context.Context) {
		probing, stopProbe := context.WithCancel(ctx)
		defer stopProbe()
		probed := make(chan time.Duration, 1)
		go func() { probed <- slowestRead(probing, environment.Admin.Client) }()
		var longest time.Duration
		for i := range 4 {
			differing := peace(healthy, other)
			longest = max(longest, served(ctx, healthy, other, fmt.Sprintf("lost-%d", i), func() { other.proxy.loses.Store(true) }))
			Expect(other.proxy.loses.Load()).To(BeFalse(), "no event was lost")
			Expect(healthy.WatchState().Differing + other.WatchState().Differing).To(BeNumerically(">", differing))
		}
		stopProbe()
		// Two heartbeats, two reads and a write lie between, which are not the watch's.
		Expect(longest).To(BeNumerically("<", bound+3*<-probed))
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
		Expect(turns.longest).To(And(BeNumerically(">", 0), BeNumerically("<", bound+3*slowest)))
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
