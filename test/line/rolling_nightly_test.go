//go:build nightly

package line_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// rolled is how many wait while all replicas are replaced, over so many connections. LINE_ROLLED sets another number.
const (
	rolled      = 1000
	connections = 30
	// listed is how many of them a list tells at most.
	listed = 500
	// movedBy is how far apart two may stand who are served in another order after three moves: each relates the clocks of
	// two replicas, of which one has just begun, by the quickest message so far.
	movedBy = 50 * time.Millisecond
	// calledBy is the same for the times of their calls, where there are more of them than a list tells: a busy machine makes
	// the ways of some calls longer.
	calledBy = 300 * time.Millisecond
)

var _ = Describe("Callers with the Go client", Label("nightly"), func() {
	It("keep their places while all replicas are replaced in turn", func(ctx context.Context) {
		number := numberOf("LINE_ROLLED", rolled)
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		service := newService(ctx, installed.nextDoor())
		callers := make([]*lock.Client, connections)
		var reader lock.LineReader
		for index := range callers {
			backend, err := client.New("https://"+service.listener.Addr().String(),
				client.WithHTTPClient(&http.Client{Transport: installed.transportOver2()}), client.WithMaxBlock(time.Hour),
				client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
			Expect(err).NotTo(HaveOccurred())
			callers[index], reader = lock.NewClient(backend, namespace), backend
			warm, err := callers[index].Acquire(ctx, fmt.Sprintf("warm-%d", index)) // Its connection is open then.
			Expect(err).NotTo(HaveOccurred())
			Expect(warm.Release(ctx)).To(Succeed())
		}
		first, err := callers[0].Acquire(ctx, "report", lock.WithTTL(30*time.Minute), lock.WithoutRenewal())
		Expect(err).NotTo(HaveOccurred())

		var mu sync.Mutex
		var served []string
		called := map[string]time.Time{}
		var all sync.WaitGroup
		for waiter := range number {
			all.Go(func() {
				defer GinkgoRecover()
				<-time.After(time.Duration(waiter) * every)
				reason, sent := strconv.Itoa(waiter), time.Now()
				held, err := callers[waiter%len(callers)].Acquire(ctx, "report", lock.WithTTL(10*time.Minute), lock.WithoutRenewal(), lock.WithReason(reason))
				Expect(err).NotTo(HaveOccurred())
				mu.Lock()
				served = append(served, reason)
				called[reason] = sent
				mu.Unlock()
				Expect(held.Release(ctx)).To(Succeed())
			})
		}
		scraper := scraperToken(ctx)
		installed.awaitAll(ctx, scraper, number)
		came := map[string]time.Time{}
		standing, _, err := reader.Waiters(ctx, namespace, v1alpha1.NewFullKey("", "", "report"), min(number, listed))
		Expect(err).NotTo(HaveOccurred())
		for _, waiter := range standing {
			came[waiter.Reason] = waiter.Since
		}
		Expect(came).To(HaveLen(min(number, listed)))
		for _, old := range slices.Clone(installed.all) {
			installed.start(ctx)
			installed.meet(ctx)
			// As a Pod that is deleted: it is told to end, and no longer an endpoint.
			installed.all = slices.DeleteFunc(installed.all, func(at *replica) bool { return at == old })
			old.process.Terminate()
			installed.tell()
			Eventually(old.process).WithTimeout(patience).Should(gexec.Exit())
			installed.awaitAll(ctx, scraper, number)
		}
		Expect(first.Release(ctx)).To(Succeed())
		all.Wait()
		Expect(served).To(HaveLen(number))
		byPlace, byCall := disorderOf(served, came), disorderOf(served, called)
		GinkgoWriter.Printf("%d served; farthest in another order %s by their places, %s by their calls\n", len(served), byPlace, byCall)
		Expect(byPlace).To(BeNumerically("<", movedBy))
		if number > listed {
			Expect(byCall).To(BeNumerically("<", calledBy))
		}
	})
})

// disorderOf returns how far apart two callers came at most of which the later was served first, of those of whom it is known.
func disorderOf(served []string, came map[string]time.Time) (farthest time.Duration) {
	var latest time.Time
	for _, waiter := range served {
		at, isKnown := came[waiter]
		if !isKnown {
			continue
		}
		farthest = max(farthest, latest.Sub(at))
		if at.After(latest) {
			latest = at
		}
	}
	return farthest
}

// awaitAll waits until so many callers wait in the lines of all replicas together.
func (i *installation) awaitAll(ctx context.Context, scraper string, number int) {
	GinkgoHelper()
	Eventually(func() float64 {
		var all float64
		for _, at := range i.all {
			all += at.footprint(ctx, scraper).waiters
		}
		return all
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(BeEquivalentTo(number))
}

// nextDoor returns a function that returns the addresses of the replicas in turn.
func (i *installation) nextDoor() func() string {
	passed := 0
	return func() string {
		i.mu.Lock()
		defer i.mu.Unlock()
		passed++
		return i.doors[passed%len(i.doors)]
	}
}
