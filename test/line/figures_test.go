package line_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// inLine is how many wait for one lock.
	inLine = 150
	// behind is how late events reach a replica whose informer is behind.
	behind = 500 * time.Millisecond
)

var _ = Describe("The line for a lock at three replicas", func() {
	It("has their callers in the order in which they came, and is passed on by about one write each", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		took := installed.lineUp(ctx, namespace, "report", inLine)
		Expect(float64(took.writes) / inLine).To(And(BeNumerically(">=", 1), BeNumerically("<=", 1.1)))
		Expect(float64(took.reads) / inLine).To(BeNumerically("<=", 0.1))
	})

	It("has the same order if the informer of one is behind, whichever is home", func(ctx context.Context) {
		installed := install(ctx, 2)
		installed.lag = behind
		installed.start(ctx)
		installed.meet(ctx)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		for _, home := range installed.all[1:] {
			installed.lineUp(ctx, namespace, installed.keyOf(home, namespace), inLine/3)
		}
	})
})

// lineUp has callers come to the replicas in turn, each of them when the one before is seen in line. Then it passes the lock on,
// which must reach them in this order, and returns the requests that this takes.
func (i *installation) lineUp(ctx context.Context, namespace, key string, number int) requests {
	GinkgoHelper()
	token := tokenOf(ctx, namespace, fixture.Worker, audience)
	callers := make([]*lock.Client, len(i.all))
	for index, at := range i.all {
		callers[index] = i.callerOver2(ctx, at, namespace, token)
	}
	first, err := callers[0].Acquire(ctx, key, lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var came, served []int
	var all sync.WaitGroup
	waiting, stop := context.WithCancel(ctx)
	defer all.Wait()
	defer stop()
	for waiter := range number {
		came = append(came, waiter)
		all.Go(func() {
			defer GinkgoRecover()
			held, err := callers[waiter%len(callers)].Acquire(waiting, key, lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
			Expect(err).NotTo(HaveOccurred())
			mu.Lock()
			served = append(served, waiter)
			mu.Unlock()
			Expect(held.Release(ctx)).To(Succeed())
		})
		i.awaitWaiters(ctx, i.all[0], namespace, key, token, waiter+1)
	}
	before := i.made()
	Expect(first.Release(ctx)).To(Succeed())
	all.Wait()
	Expect(served).To(Equal(came))
	return i.made().since(before)
}

// keyOf returns a key to whose line a replica is home.
func (i *installation) keyOf(home *replica, namespace string) string {
	for number := 0; ; number++ {
		key := fmt.Sprintf("report-%d", number)
		if found, _ := i.home(namespace, key); found == home {
			return key
		}
	}
}

// callerOver2 is a client of one replica over one connection with HTTP/2, which is open.
func (i *installation) callerOver2(ctx context.Context, at *replica, namespace, token string) *lock.Client {
	GinkgoHelper()
	made := lock.NewClient(i.backendOver2(at, token), namespace)
	held, err := made.Acquire(ctx, "warm-"+at.name)
	Expect(err).NotTo(HaveOccurred())
	Expect(held.Release(ctx)).To(Succeed())
	return made
}

func (i *installation) backendOver2(at *replica, token string) *client.Client {
	GinkgoHelper()
	backend, err := client.New("https://"+at.address, client.WithHTTPClient(&http.Client{Transport: i.transportOver2()}),
		client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
	Expect(err).NotTo(HaveOccurred())
	return backend
}

// transportOver2 has a few connections with HTTP/2 to each replica.
func (i *installation) transportOver2() *http.Transport {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(i.authority)).To(BeTrue())
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	DeferCleanup(transport.CloseIdleConnections)
	return transport
}

var _ = Describe("A hot key", func() {
	// How fast it is stands in docs/performance.md; test/bench measures that.
	It("is passed on by about one write, through whichever replicas", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		const clients, each = 15, 40
		var all sync.WaitGroup
		began := time.Now()
		var before requests
		made := make([]*lock.Client, clients)
		for index := range made {
			made[index] = installed.callerOver2(ctx, installed.all[index%len(installed.all)], namespace, token)
		}
		before = installed.made()
		for _, caller := range made {
			all.Go(func() {
				defer GinkgoRecover()
				for range each {
					held, err := caller.Acquire(ctx, "hot", lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
					Expect(err).NotTo(HaveOccurred())
					Expect(held.Release(ctx)).To(Succeed())
				}
			})
		}
		all.Wait()
		told := installed.made().since(before)
		grants := float64(clients * each)
		GinkgoWriter.Printf("%.0f hand-offs in %s, %.3f writes and %.3f reads each\n", grants, time.Since(began).Round(time.Millisecond),
			float64(told.writes)/grants, float64(told.reads)/grants)
		for index, gateway := range installed.gateways {
			GinkgoWriter.Printf("replica %d: %+v\n", index, gateway.counts)
		}
		Expect(float64(told.writes) / grants).To(BeNumerically("<=", 1.1))
		Expect(float64(told.reads) / grants).To(BeNumerically("<=", 0.1))
	})
})
