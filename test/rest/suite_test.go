// Package rest_test proves that the REST door keeps its promises on an API server: what the seed of
// docs/rest.md asks for, step by step over HTTP, and what each step costs.
package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/auth"
	restdoor "forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestREST(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The REST door on an API server")
}

var (
	environment *fixture.Cluster
	requests    *counter
	url         string
	namespace   string
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	requests = &counter{}
	url = startFacade(ctx, requests, 0, nil)
})

var _ = BeforeEach(func(ctx context.Context) { namespace = environment.Namespace(ctx, "rest-") })

// counter counts requests for Locks that are no watches, by method.
type counter struct {
	mu    sync.Mutex
	made  map[string]int
	until http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasPrefix(request.URL.Path, "/apis/forrst.dev/") && request.URL.Query().Get("watch") == "" {
		c.mu.Lock()
		c.made[request.Method]++
		c.mu.Unlock()
	}
	return c.until.RoundTrip(request)
}

// taken returns and forgets the counts.
func (c *counter) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = map[string]int{}
	return made
}

// startFacade starts an engine with an informer, as the operator has it, and a façade on it whose callers
// the API server authenticates. Both leave an expired lock alone for the allowance.
func startFacade(ctx context.Context, requests *counter, allowance time.Duration, records audit.Sink) string {
	GinkgoHelper()
	config := rest.CopyConfig(environment.Operator().Config)
	now := servertime.New(clock.RealClock{})
	config.Wrap(now.RoundTripper)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		requests.until, requests.made = next, map[string]int{}
		return requests
	})
	httpClient, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	stream := engine.NewWatchStream(now, logr.Discard())
	informer := objects.Informer("", stream)
	running, err := engine.New(engine.Options{
		Objects: objects.Locks, Informer: informer, Stream: stream, Limits: rules.DefaultLimits(), IsValidated: true, Clock: now,
		ClockSkewAllowance: allowance, Audit: records,
	})
	Expect(err).NotTo(HaveOccurred())
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { informer.RunWithContext(background) })
	parts.Go(func() {
		defer GinkgoRecover()
		Expect(running.Start(background)).To(Succeed())
	})
	handler, err := testfacade.New(testfacade.Settings{
		Locks: running, Access: fixture.Access(environment.Operator().Config, auth.Options{}), Clock: now, ClockSkewAllowance: allowance,
	})
	Expect(err).NotTo(HaveOccurred())
	served := httptest.NewServer(handler)
	DeferCleanup(func() {
		served.Close()
		stop()
		parts.Wait()
	})
	Eventually(informer.HasSynced).WithTimeout(patience).Should(BeTrue())
	return served.URL
}

// answer is what came back for a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) lock() wire.Lock {
	GinkgoHelper()
	var held wire.Lock
	Expect(json.Unmarshal(a.body, &held)).To(Succeed(), "%s", a.body)
	return held
}

func (a answer) problem() restdoor.Problem {
	GinkgoHelper()
	var problem restdoor.Problem
	Expect(json.Unmarshal(a.body, &problem)).To(Succeed(), "%s", a.body)
	return problem
}

// caller calls with a bearer token.
type caller struct{ token string }

// do sends a request about a path below the locks of the namespace, with headers, name after value.
func (c caller) do(ctx context.Context, method, path, body string, headers ...string) answer {
	GinkgoHelper()
	return send(c.request(ctx, method, "/locks"+path, body, headers...))
}

func send(request *http.Request) answer {
	GinkgoHelper()
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, response.Header, text}
}

func (c caller) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, url+"/v1/namespaces/"+namespace+path, bytes.NewReader([]byte(body)))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	return request
}
