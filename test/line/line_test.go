package line_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// waiters wait for one lock; they are spread over the replicas.
const waiters = 300

// kills is how often the home of the line is killed. LINE_KILLS sets another number.
const kills = 5

// homeKills is how often a home is killed that half of the waiters are connected to. LINE_HOME_KILLS sets another number.
const homeKills = 2

// maxPause is for how long no waiter may get the lock when its home dies.
const maxPause = 2 * time.Second

// grants are those of one key.
type grants struct {
	mu      sync.Mutex
	order   []int
	holders int
	// token is that of the last grant.
	token   int64
	last    time.Time
	longest time.Duration
}

// hold records a grant until let. It returns an error if another waiter holds the lock, or has held it later.
func (g *grants) hold(waiter int, token int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if len(g.order) > 0 {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.order, g.last = append(g.order, waiter), now
	g.holders++
	if g.holders > 1 {
		return fmt.Errorf("waiter %d is granted a lock that another one holds", waiter)
	}
	if token <= g.token {
		return fmt.Errorf("waiter %d has token %d after %d", waiter, token, g.token)
	}
	g.token = token
	return nil
}

func (g *grants) let() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holders--
}

var _ = Describe("The line for a lock", func() {
	It("has the callers of all replicas in the order in which they came", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		callers := make([]*lock.Client, len(installed.all))
		for index, at := range installed.all {
			callers[index] = installed.caller(ctx, at, namespace, token)
		}
		first, err := callers[0].Acquire(ctx, "report", lock.WithTTL(10*time.Minute))
		Expect(err).NotTo(HaveOccurred())

		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		defer all.Wait()
		for i := range waiters {
			all.Go(func() {
				defer GinkgoRecover()
				held, err := callers[i%len(callers)].Acquire(ctx, "report", lock.WithTTL(10*time.Minute))
				Expect(err).NotTo(HaveOccurred())
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				Expect(held.Release(ctx)).To(Succeed())
			})
			installed.awaitWaiters(ctx, installed.all[0], namespace, "report", token, i+1)
		}
		began := time.Now()
		Expect(first.Release(ctx)).To(Succeed())
		all.Wait()
		GinkgoWriter.Printf("%d hand-offs in %s\n", waiters, time.Since(began))
		Expect(order).To(HaveLen(waiters))
		Expect(slices.IsSorted(order)).To(BeTrue(), fmt.Sprint(order))
	})

	It("outlives its home", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		for try := range numberOf("LINE_KILLS", kills) {
			key := fmt.Sprintf("report-%d", try)
			home, others := installed.home(namespace, key)
			callers := []*lock.Client{installed.caller(ctx, others[0], namespace, token), installed.caller(ctx, others[1], namespace, token)}
			first, err := callers[0].Acquire(ctx, key, lock.WithTTL(10*time.Minute))
			Expect(err).NotTo(HaveOccurred())
			var seen grants
			var all sync.WaitGroup
			const waiters = 200
			for i := range waiters {
				all.Go(func() {
					defer GinkgoRecover()
					held, err := callers[i%len(callers)].Acquire(ctx, key, lock.WithTTL(10*time.Minute))
					Expect(err).NotTo(HaveOccurred())
					Expect(seen.hold(i, held.FencingToken())).To(Succeed())
					isOwner, err := held.Owns(ctx) // It takes time in which no other one may hold the lock.
					seen.let()
					Expect(err).NotTo(HaveOccurred())
					Expect(isOwner).To(BeTrue(), "another one holds the lock of waiter %d", i)
					Expect(held.Release(ctx)).To(Succeed())
				})
				installed.awaitWaiters(ctx, others[0], namespace, key, token, i+1)
			}
			Expect(first.Release(ctx)).To(Succeed())
			Eventually(func() int {
				seen.mu.Lock()
				defer seen.mu.Unlock()
				return len(seen.order)
			}).WithTimeout(patience).WithPolling(time.Millisecond).Should(BeNumerically(">", 10+try))
			home.process.Kill()
			all.Wait()
			GinkgoWriter.Printf("kill %d: the longest pause was %s\n", try, seen.longest)
			Expect(seen.order).To(HaveLen(waiters))
			Expect(slices.IsSorted(seen.order)).To(BeTrue(), fmt.Sprint(seen.order))
			Expect(seen.longest).To(BeNumerically("<", maxPause))
			installed.replace(ctx, home)
		}
	})

	It("keeps the places of those who were connected to its home", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		for try := range numberOf("LINE_HOME_KILLS", homeKills) {
			key := fmt.Sprintf("kept-%d", try)
			home, others := installed.home(namespace, key)
			first, err := installed.caller(ctx, others[0], namespace, token).Acquire(ctx, key, lock.WithTTL(10*time.Minute))
			Expect(err).NotTo(HaveOccurred())
			// The callers of the home lose their connections when it dies, and find another replica.
			var isGone atomic.Bool
			service := newService(ctx, func() string {
				if isGone.Load() {
					return others[0].address
				}
				return home.address
			})
			atHome, err := client.New("https://"+service.listener.Addr().String(), client.WithHTTPClient(&http.Client{Transport: installed.newTransport()}),
				client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
			Expect(err).NotTo(HaveOccurred())
			callers := []*lock.Client{lock.NewClient(atHome, namespace), installed.caller(ctx, others[1], namespace, token)}
			var seen grants
			var all sync.WaitGroup
			const waiters = 60
			for i := range waiters {
				all.Go(func() {
					defer GinkgoRecover()
					held, err := callers[i%len(callers)].Acquire(ctx, key, lock.WithTTL(10*time.Minute))
					Expect(err).NotTo(HaveOccurred())
					Expect(seen.hold(i, held.FencingToken())).To(Succeed())
					seen.let()
					Expect(held.Release(ctx)).To(Succeed())
				})
				installed.awaitWaiters(ctx, others[0], namespace, key, token, i+1)
			}
			Eventually(func() (time.Duration, error) {
				waiting, _, err := atHome.Waiters(ctx, namespace, v1alpha1.NewFullKey("", "", key), waiters)
				if err != nil || len(waiting) < waiters {
					return 0, err
				}
				return time.Since(waiting[waiters-1].Since), nil
			}).WithTimeout(patience).Should(BeNumerically(">", 2*time.Second), "the next home has their places by then")
			isGone.Store(true)
			home.process.Kill()
			Eventually(home.process).WithTimeout(patience).Should(gexec.Exit())
			installed.awaitWaiters(ctx, others[0], namespace, key, token, waiters)
			Expect(first.Release(ctx)).To(Succeed())
			all.Wait()
			Expect(seen.order).To(HaveLen(waiters))
			Expect(slices.IsSorted(seen.order)).To(BeTrue(), fmt.Sprint(seen.order))
			installed.replace(ctx, home)
		}
	})
})

// numberOf is the value of a variable of the environment, or the default.
func numberOf(variable string, otherwise int) int {
	GinkgoHelper()
	given, isGiven := os.LookupEnv(variable)
	if !isGiven {
		return otherwise
	}
	number, err := strconv.Atoi(given)
	Expect(err).NotTo(HaveOccurred(), variable)
	return number
}
