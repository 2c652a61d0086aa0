package auth_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/test/support/fixture"
)

// tenant is a service account that acquires and releases locks through a replica of the operator.
type tenant struct {
	url, token string
	client     *http.Client

	mu sync.Mutex
	// took are the times of the cycles that were done.
	took []time.Duration
	// refused counts the answers to acquires with status 429, refusedReleases those to releases.
	refused, refusedReleases int
	// failed are other answers.
	failed []string
}

// newTenant returns a service account of a namespace of its own.
func newTenant(ctx context.Context, facade string) *tenant {
	GinkgoHelper()
	namespace := createNamespace(ctx, "worker")
	return &tenant{url: facade, token: token(ctx, namespace, "worker", "lock-operator.forrst.dev"), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
}

// do returns the status of the answer to a call, or 0 if there is none.
func (t *tenant) do(ctx context.Context, function, arguments string) (int, string) {
	body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":%q,"arguments":%s}}`, function, arguments)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/forrst", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+t.token)
	response, err := t.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// refusals returns how many acquires were refused.
func (t *tenant) refusals() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// cycle acquires and releases a lock of its own.
func (t *tenant) cycle(ctx context.Context, number int) {
	arguments := fmt.Sprintf(`{"key":"k%d","owner":"o","ttl":{"value":1,"unit":"minute"}}`, number)
	start := time.Now()
	status, text := t.do(ctx, wire.Acquire, arguments)
	released := http.StatusOK
	if status == http.StatusOK {
		released, text = t.do(ctx, wire.Release, fmt.Sprintf(`{"key":"k%d","owner":"o"}`, number))
	}
	took := time.Since(start)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case status == http.StatusTooManyRequests:
		t.refused++
	case released == http.StatusTooManyRequests:
		t.refusedReleases++
	case status != http.StatusOK || released != http.StatusOK:
		t.failed = append(t.failed, text)
	default:
		t.took = append(t.took, took)
	}
}

func startReplica(ctx context.Context, flags ...string) (facade string) {
	GinkgoHelper()
	address := fixture.FreeAddress(ctx)
	fixture.StartOperator(ctx, environment.Operator().Kubectl, append(flags, "--components=facade", "--facade-bind-address="+address, "--facade-shutdown-delay=0s")...)
	return "http://" + address
}

// awaitAccess returns when the replica knows the tenant's rights.
func (t *tenant) awaitAccess(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() int {
		status, _ := t.do(ctx, wire.List, `{}`)
		return status
	}).WithTimeout(patience).Should(Equal(http.StatusOK))
}

var _ = Describe("A façade with several tenants", func() {
	It("refuses a tenant that asks for more than its rate, and no other one", func(ctx context.Context) {
		const perSecond, quietCycles, loudLoops = 10, 10, 8
		facade := startReplica(ctx, fmt.Sprint("--facade-max-rate-per-caller=", perSecond))
		quiet, loud := newTenant(ctx, facade), newTenant(ctx, facade)
		quiet.awaitAccess(ctx)
		loud.awaitAccess(ctx)

		loading, stop := context.WithCancel(ctx)
		defer stop()
		var number atomic.Int32
		var loops sync.WaitGroup
		for range loudLoops {
			loops.Go(func() {
				for loading.Err() == nil {
					loud.cycle(ctx, int(number.Add(1)))
				}
			})
		}
		ticker := time.NewTicker(time.Second / 4)
		defer ticker.Stop()
		for number := range quietCycles {
			<-ticker.C
			quiet.cycle(ctx, number)
		}
		Eventually(loud.refusals).WithTimeout(patience).Should(BeNumerically(">", 0), "the other tenant was let through")
		stop()
		loops.Wait()

		Expect(quiet.failed).To(BeEmpty())
		Expect(quiet.refusals() + quiet.refusedReleases).To(BeZero())
		Expect(quiet.took).To(HaveLen(quietCycles))
		Expect(loud.refusedReleases).To(BeZero(), "releases have a rate of their own")
		Expect(loud.took).NotTo(BeEmpty(), "it has its own share as well")
	})

	It("serves callers while a client without a token opens thousands of idle connections", func(ctx context.Context) {
		// The façade ends new connections in place of idle ones if it has too many. On a busy machine that may meet one whose
		// request it has not read yet; a caller repeats that. "make timing" wants none.
		caller := callAmongIdleConnections(ctx, patience)
		Expect(len(caller.failed)).To(BeNumerically("<=", len(caller.took)/4), "%q", caller.failed)
	})
})

// callAmongIdleConnections returns a tenant that has acquired and released some locks of a replica, each over a connection of
// its own and within the time, while a client without a token opened thousands of connections again and again.
func callAmongIdleConnections(ctx context.Context, within time.Duration) *tenant {
	GinkgoHelper()
	const networks, perNetwork, cycles = 20, 150, 20
	facade := startReplica(ctx, "--facade-max-connections=1000")
	caller := newTenant(ctx, facade)
	caller.awaitAccess(ctx)

	attack, endAttack := context.WithCancel(ctx)
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer endAttack()
	var opened, ended atomic.Int32
	for network := range networks {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(network+1))}, Timeout: patience}
		for range perNetwork {
			attackers.Go(func() {
				again := time.NewTicker(2 * time.Second)
				defer again.Stop()
				for attack.Err() == nil {
					holdOpen(attack, dialer, strings.TrimPrefix(facade, "http://"), &opened)
					ended.Add(1)
					select {
					case <-attack.Done():
					case <-again.C:
					}
				}
			})
		}
	}
	Eventually(opened.Load).WithTimeout(2 * patience).Should(BeNumerically(">=", 2000))
	caller.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: within}
	for number := range cycles {
		caller.cycle(ctx, number)
	}
	AddReportEntry("connections", fmt.Sprintf("%d opened, %d ended", opened.Load(), ended.Load()))
	Expect(len(caller.took) + len(caller.failed)).To(Equal(cycles))
	return caller
}

// holdOpen opens a connection, sends a request without a token, and then nothing, until the server or
// ctx ends it.
func holdOpen(ctx context.Context, dialer *net.Dialer, address string, opened *atomic.Int32) {
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	defer func() { _ = connection.Close() }()
	opened.Add(1)
	if _, err := io.WriteString(connection, "POST /forrst HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, connection) // It ends when the connection does.
}
