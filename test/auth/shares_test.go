package auth_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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

// load begins cycles at a rate, whether or not earlier ones have ended, and waits until all have.
func (t *tenant) load(ctx context.Context, perSecond int, length time.Duration) (begun int) {
	ctx, cancel := context.WithTimeout(ctx, length+patience)
	defer cancel()
	var cycles sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for end := time.After(length); ; begun++ {
		select {
		case <-end:
			cycles.Wait()
			return begun
		case <-ticker.C:
			number := begun
			cycles.Go(func() { t.cycle(ctx, number) })
		}
	}
}

// p99 is the time in which 99 of 100 cycles were done.
func (t *tenant) p99() time.Duration {
	sorted := slices.Sorted(slices.Values(t.took))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*99-1)/100]
}

func startReplica(ctx context.Context, flags ...string) (facade string) {
	GinkgoHelper()
	address := fixture.FreeAddress(ctx)
	fixture.StartOperator(ctx, environment.Operator().Kubectl, append(flags, "--components=facade", "--facade-bind-address="+address, "--facade-shutdown-delay=0s")...)
	return "http://" + address
}

var _ = Describe("A façade with several tenants", func() {
	// One tenant asks for 4 cycles a second, the other one for 400, without waiting for answers. The
	// fair share of the first is all that it asks for, since that is less than half of what the API
	// server can do. It keeps 80 % of it: of its cycles, so many are done without a refusal, and each
	// of 99 in 100 of them within a second. Without rates the calls of the other tenant queue up before
	// the API server, and one takes many seconds.
	It("leaves a tenant its fair share while another one asks for a hundred times as much", func(ctx context.Context) {
		const quietRate, length = 4, 10 * time.Second
		facade := startReplica(ctx, "--facade-max-rate-per-caller=20", "--facade-max-rate-per-namespace=20")
		quiet, loud := newTenant(ctx, facade), newTenant(ctx, facade)
		for _, each := range []*tenant{quiet, loud} {
			Eventually(func() int {
				status, _ := each.do(ctx, wire.List, `{}`)
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusOK))
		}
		var loads sync.WaitGroup
		var asked, askedLoudly int
		loads.Go(func() { asked = quiet.load(ctx, quietRate, length) })
		loads.Go(func() { askedLoudly = loud.load(ctx, 100*quietRate, length) })
		loads.Wait()
		AddReportEntry("cycles", fmt.Sprintf("%d of %d, p99 %s, refused %d; of the other tenant %d of %d, p99 %s, refused %d",
			len(quiet.took), asked, quiet.p99(), quiet.refused, len(loud.took), askedLoudly, loud.p99(), loud.refused))

		Expect(quiet.failed).To(BeEmpty())
		Expect(float64(len(quiet.took))).To(BeNumerically(">=", 0.8*float64(asked)))
		Expect(quiet.p99()).To(BeNumerically("<=", time.Second))
		Expect(loud.refused).To(BeNumerically(">", askedLoudly/2), "the other tenant was let through")
		Expect(loud.refusedReleases).To(BeZero(), "releases have a rate of their own")
		// It has its own share as well.
		Expect(float64(len(loud.took))).To(BeNumerically(">=", 0.8*20*length.Seconds()))
	})

	It("serves callers while a client without a token opens thousands of idle connections", func(ctx context.Context) {
		const networks, perNetwork = 20, 150
		facade := startReplica(ctx, "--facade-max-connections=1000")
		caller := newTenant(ctx, facade)
		Eventually(func() int {
			status, _ := caller.do(ctx, wire.List, `{}`)
			return status
		}).WithTimeout(patience).Should(Equal(http.StatusOK))

		attack, endAttack := context.WithCancel(ctx)
		var attackers sync.WaitGroup
		defer attackers.Wait()
		defer endAttack()
		var opened, ended atomic.Int32
		for network := range networks {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(network+1))}, Timeout: time.Second}
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
		Eventually(opened.Load).WithTimeout(patience).Should(BeNumerically(">=", 2000))
		// Each call opens a connection of its own.
		caller.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
		for number := range 20 {
			caller.cycle(ctx, number)
		}
		AddReportEntry("connections", fmt.Sprintf("%d opened, %d ended; cycles p99 %s", opened.Load(), ended.Load(), caller.p99()))
		Expect(caller.failed).To(BeEmpty())
		Expect(caller.took).To(HaveLen(20))
		Expect(caller.p99()).To(BeNumerically("<=", 2*time.Second))
	})
})

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
