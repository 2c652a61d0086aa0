package line_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// maxBlock is how long each call of a patient caller may wait, and callsBefore how many it has made when the lock is free.
	maxBlock    = time.Second
	callsBefore = 6
	// rivals come while it waits, one in each of its calls.
	rivals = callsBefore - 1
)

// roaming sends each request to the next replica.
type roaming struct {
	*http.Transport
	doors []string
	sent  atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (r *roaming) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.Host = r.doors[r.sent.Add(1)%int64(len(r.doors))]
	return r.Transport.RoundTrip(request)
}

var _ = Describe("A wait that is longer than a call may be", func() {
	It("is one place in the line, though each call comes to another replica", func(ctx context.Context) {
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		var callers []*lock.Client
		for _, at := range installed.all {
			callers = append(callers, installed.callerOver2(ctx, at, namespace, token))
		}
		way := &roaming{Transport: installed.newTransport(), doors: installed.doors}
		DeferCleanup(way.CloseIdleConnections)
		backend, err := client.New("https://"+way.doors[0], client.WithHTTPClient(&http.Client{Transport: way}), client.WithMaxBlock(maxBlock),
			client.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
		Expect(err).NotTo(HaveOccurred())
		first, err := callers[0].Acquire(ctx, "report", lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
		Expect(err).NotTo(HaveOccurred())

		served := make(chan string, rivals+1)
		wait := func(caller *lock.Client, name string) {
			go func() {
				defer GinkgoRecover()
				held, err := caller.Acquire(ctx, "report", lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
				Expect(err).NotTo(HaveOccurred())
				served <- name
				Expect(held.Release(ctx)).To(Succeed())
			}()
		}
		wait(lock.NewClient(backend, namespace), "patient")
		var want []string
		for rival := range rivals {
			Eventually(way.sent.Load).WithTimeout(patience).Should(BeNumerically(">", rival))
			installed.awaitWaiters(ctx, installed.all[0], namespace, "report", token, rival+1)
			name := fmt.Sprintf("rival %d", rival+1)
			want = append(want, name)
			wait(callers[rival%len(callers)], name)
		}
		Eventually(way.sent.Load).WithTimeout(patience).WithPolling(time.Millisecond).Should(BeNumerically(">=", callsBefore))
		installed.awaitWaiters(ctx, installed.all[0], namespace, "report", token, rivals+1)
		Expect(first.Release(ctx)).To(Succeed()) // Soon after the patient caller has called again.
		for _, name := range append([]string{"patient"}, want...) {
			Eventually(served).WithTimeout(patience).Should(Receive(Equal(name)))
		}
		Expect(way.sent.Load()).To(BeNumerically(">=", callsBefore))
	})
})
