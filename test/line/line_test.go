package line_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

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

func (g *grants) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.order)
}

// expectOrder checks that all have been granted the lock, in the order in which they came.
func (g *grants) expectOrder(number int) {
	GinkgoHelper()
	g.mu.Lock()
	defer g.mu.Unlock()
	Expect(g.order).To(HaveLen(number))
	Expect(slices.IsSorted(g.order)).To(BeTrue(), fmt.Sprint(g.order))
}

var _ = Describe("The line for a lock", func() {
	It("outlives its home", func(ctx context.Context) {
		installed := install(ctx, 3)
		installed.killHome(ctx, "report", 100)
	})

	It("goes on before those who were connected to its home, and have to come again", func(ctx context.Context) {
		installed := install(ctx, 3)
		installed.killHomeOfCallers(ctx, "again", 20)
	})
})

// killHome has callers of the two other replicas pass a lock on, and kills the home of its line when some have had it. All must
// get it, in the order in which they came.
func (i *installation) killHome(ctx context.Context, key string, number int) *grants {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "line-")
	environment.AllowWorkers(ctx, namespace)
	token := tokenOf(ctx, namespace, fixture.Worker, audience)
	home, others := i.home(namespace, key)
	callers := []*lock.Client{i.caller(ctx, others[0], namespace, token), i.caller(ctx, others[1], namespace, token)}
	first, err := callers[0].Acquire(ctx, key, lock.WithTTL(10*time.Minute))
	Expect(err).NotTo(HaveOccurred())
	seen := &grants{}
	var all sync.WaitGroup
	waiting, stop := context.WithCancel(ctx)
	defer all.Wait()
	defer stop()
	for waiter := range number {
		all.Go(func() {
			defer GinkgoRecover()
			held, err := callers[waiter%len(callers)].Acquire(waiting, key, lock.WithTTL(10*time.Minute))
			Expect(err).NotTo(HaveOccurred())
			Expect(seen.hold(waiter, held.FencingToken())).To(Succeed())
			isOwner, err := held.Owns(ctx) // It takes time in which no other one may hold the lock.
			seen.let()
			Expect(err).NotTo(HaveOccurred())
			Expect(isOwner).To(BeTrue(), "another one holds the lock of waiter %d", waiter)
			Expect(held.Release(ctx)).To(Succeed())
		})
		i.awaitWaiters(ctx, others[0], namespace, key, token, waiter+1)
	}
	Expect(first.Release(ctx)).To(Succeed())
	Eventually(seen.count).WithTimeout(patience).WithPolling(time.Millisecond).Should(BeNumerically(">", 10))
	home.process.Kill()
	all.Wait()
	seen.expectOrder(number)
	GinkgoWriter.Printf("%s: the longest pause was %s\n", key, seen.longest)
	return seen
}

// killHomeOfCallers has callers wait at the home of a line and at another replica, and kills the home before any has had the lock.
// Those of the home lose their connections, find another replica, and stand behind all others.
func (i *installation) killHomeOfCallers(ctx context.Context, key string, number int) {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "line-")
	environment.AllowWorkers(ctx, namespace)
	token := tokenOf(ctx, namespace, fixture.Worker, audience)
	home, others := i.home(namespace, key)
	first, err := i.caller(ctx, others[0], namespace, token).Acquire(ctx, key, lock.WithTTL(10*time.Minute))
	Expect(err).NotTo(HaveOccurred())
	var isGone atomic.Bool
	service := newService(ctx, func() string {
		if isGone.Load() {
			return others[0].address
		}
		return home.address
	})
	atHome, err := client.New("https://"+service.listener.Addr().String(), client.WithHTTPClient(&http.Client{Transport: i.newTransport()}),
		client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
	Expect(err).NotTo(HaveOccurred())
	callers := []*lock.Client{lock.NewClient(atHome, namespace), i.caller(ctx, others[1], namespace, token)}
	var seen grants
	var all sync.WaitGroup
	waiting, stop := context.WithCancel(ctx)
	defer all.Wait()
	defer stop()
	for waiter := range number {
		all.Go(func() {
			defer GinkgoRecover()
			held, err := callers[waiter%len(callers)].Acquire(waiting, key, lock.WithTTL(10*time.Minute))
			Expect(err).NotTo(HaveOccurred())
			Expect(seen.hold(waiter, held.FencingToken())).To(Succeed())
			seen.let()
			Expect(held.Release(ctx)).To(Succeed())
		})
		i.awaitWaiters(ctx, others[0], namespace, key, token, waiter+1)
	}
	isGone.Store(true)
	home.process.Kill()
	Eventually(home.process).WithTimeout(patience).Should(gexec.Exit())
	i.awaitWaiters(ctx, others[0], namespace, key, token, number)
	Expect(first.Release(ctx)).To(Succeed())
	all.Wait()
	Expect(seen.order).To(HaveLen(number))
	isOfHome := func(waiter int) bool { return waiter%len(callers) == 0 }
	stayed := slices.DeleteFunc(slices.Clone(seen.order), isOfHome)
	Expect(slices.IsSorted(stayed)).To(BeTrue(), fmt.Sprint(seen.order))
	Expect(seen.order[:len(stayed)]).To(Equal(stayed), "those who have come again stand behind")
}
