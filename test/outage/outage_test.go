// Package outage_test proves that a façade answers while the API server is away, loses no accepted call, and serves waiters
// whose watch is bad.
package outage_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/test/support/fixture"
)

func TestOutage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Outage")
}

var environment *fixture.Cluster

var _ = BeforeSuite(func(ctx context.Context) { environment = fixture.Start(ctx) })

// patience has room for a slow machine.
const patience = 2 * time.Minute

// stop stops the API server until the end of the spec at the latest.
func stop() (start func()) {
	GinkgoHelper()
	Expect(environment.APIServer().Stop()).To(Succeed())
	isStopped := true
	start = func() {
		GinkgoHelper()
		if isStopped {
			isStopped = false
			Expect(environment.APIServer().Start()).To(Succeed())
		}
	}
	DeferCleanup(start)
	return start
}

var _ = Describe("While the API server is gone", func() {
	It("a façade answers UNAVAILABLE, carries out what it accepted, and serves again when it is back", func(ctx context.Context) {
		url := environment.StartFacade(ctx, environment.Namespace(ctx, "gone-"))
		ask := func(body string) string {
			GinkgoHelper()
			return post(ctx, url, body)
		}
		hold(ctx, url)
		start := stop()
		askInVain(ctx, url)
		start()
		Eventually(ask).WithArguments(call("status", `{"key":"released"}`)).WithTimeout(patience).Should(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"tried"}`))).To(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"kept"}`))).To(And(ContainSubstring(`"locked":true`), ContainSubstring(`"owner":"job-17"`)))
		Expect(ask(acquire("kept"))).To(ContainSubstring("LOCK_ACQUISITION_FAILED"))
		Expect(ask(call("release", `{"key":"kept","owner":"job-17"}`))).To(ContainSubstring(`"released":true`))
	})

	It("an operator that starts does not end, and becomes ready when it is there", func(ctx context.Context) {
		identity := environment.Operator().Kubectl
		start := stop()
		facade, isFacadeReady := fixture.LaunchOperator(ctx, identity, "--components=facade",
			"--facade-auth=none", "--facade-bind-address="+fixture.FreeAddress(ctx))
		whole, isWholeReady := fixture.LaunchOperator(ctx, identity, "--components=facade,controller",
			"--facade-auth=none", "--facade-bind-address="+fixture.FreeAddress(ctx))
		Consistently(facade.ExitCode).WithTimeout(5 * time.Second).Should(Equal(-1))
		Expect(whole.ExitCode()).To(Equal(-1))
		start()
		for _, isReady := range []func(context.Context) (int, error){isFacadeReady, isWholeReady} {
			Eventually(isReady).WithContext(ctx).WithTimeout(patience).Should(Equal(http.StatusOK))
		}
	})
})

// hold takes the locks of askInVain.
func hold(ctx context.Context, url string) {
	GinkgoHelper()
	for _, key := range []string{"kept", "released"} {
		Expect(post(ctx, url, acquire(key))).To(ContainSubstring(`"acquired":true`))
	}
}

// askInVain makes calls of a façade that cannot know the answers.
func askInVain(ctx context.Context, url string) {
	GinkgoHelper()
	for _, body := range []string{acquire("tried"), call("status", `{"key":"kept"}`), call("release", `{"key":"released","owner":"job-17"}`)} {
		Expect(post(ctx, url, body)).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
	}
}

func acquire(key string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"},"extensions":[
		{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","owner":"job-17","ttl":{"value":1,"unit":"hour"},"auto_release":false}}]}`, key)
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
