// Package outage_test takes the API server away from a running façade.
package outage_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
)

func TestOutage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Outage")
}

var _ = Describe("A façade whose API server is gone", func() {
	var environment *testenv.Environment
	var server *httptest.Server

	BeforeEach(func(ctx context.Context) {
		var err error
		environment, err = testenv.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return environment.Stop() })
		server = serve(ctx, environment)
	})

	It("answers UNAVAILABLE at once, carries out what it accepted, and goes on when it is back", func(ctx context.Context) {
		ask := func(body string) string {
			GinkgoHelper()
			return post(ctx, server.URL, body)
		}
		Expect(ask(acquire("kept"))).To(ContainSubstring(`"acquired":true`))
		Expect(ask(acquire("released"))).To(ContainSubstring(`"acquired":true`))

		Expect(environment.StopAPIServer()).To(Succeed())
		asked := time.Now()
		Expect(ask(acquire("tried"))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(ask(call("status", `{"key":"kept"}`))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(ask(call("release", `{"key":"released","owner":"job-17"}`))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(time.Since(asked)).To(BeNumerically("<", lock.OperationTimeout))

		Expect(environment.StartAPIServer()).To(Succeed())
		Eventually(ask).WithArguments(call("status", `{"key":"released"}`)).WithTimeout(30 * time.Second).Should(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"tried"}`))).To(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"kept"}`))).To(And(ContainSubstring(`"locked":true`), ContainSubstring(`"owner":"job-17"`)))
		Expect(ask(acquire("kept"))).To(ContainSubstring("LOCK_ACQUISITION_FAILED"))
		Expect(ask(call("release", `{"key":"kept","owner":"job-17"}`))).To(ContainSubstring(`"released":true`))
	})
})

// serve runs a façade with the identity of the operator.
func serve(ctx context.Context, environment *testenv.Environment) *httptest.Server {
	GinkgoHelper()
	operator, _, err := environment.User(testenv.OperatorUser)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.HTTPClientFor(operator)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(operator, transport)
	Expect(err).NotTo(HaveOccurred())
	engine, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits()})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- engine.Start(running) }()
	DeferCleanup(func() error {
		stop()
		return <-stopped
	})

	handler, err := forrst.New(forrst.Config{Locks: engine, Namespace: "default", Limits: rules.DefaultLimits()})
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	return server
}

func acquire(key string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"},"extensions":[
		{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":"job-17","ttl":{"value":5,"unit":"minute"},"auto_release":false}}]}`, key)
}

func call(function, arguments string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.locks.%s","arguments":%s}}`, function, arguments)
}

// post returns status and body of the answer.
func post(ctx context.Context, url, body string) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+forrst.Path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprint(response.StatusCode, " ", string(answer))
}
