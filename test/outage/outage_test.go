// Package outage_test proves that a façade answers at once while the API server is away and
// loses no accepted call.
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
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

func TestOutage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Outage")
}

var _ = Describe("A façade whose API server is gone", func() {
	It("answers UNAVAILABLE at once, carries out what it accepted, and serves again when it is back", func(ctx context.Context) {
		environment := fixture.Start(ctx)
		url := environment.StartFacade(ctx, "default")
		ask := func(body string) string {
			GinkgoHelper()
			return post(ctx, url, body)
		}
		Expect(ask(acquire("kept"))).To(ContainSubstring(`"acquired":true`))
		Expect(ask(acquire("released"))).To(ContainSubstring(`"acquired":true`))

		Expect(environment.APIServer().Stop()).To(Succeed())
		asked := time.Now()
		Expect(ask(acquire("tried"))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(ask(call("status", `{"key":"kept"}`))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(ask(call("release", `{"key":"released","owner":"job-17"}`))).To(And(ContainSubstring("503"), ContainSubstring(`"UNAVAILABLE"`)))
		Expect(time.Since(asked)).To(BeNumerically("<", lock.OperationTimeout))

		Expect(environment.APIServer().Start()).To(Succeed())
		Eventually(ask).WithArguments(call("status", `{"key":"released"}`)).WithTimeout(30 * time.Second).Should(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"tried"}`))).To(ContainSubstring(`"locked":false`))
		Expect(ask(call("status", `{"key":"kept"}`))).To(And(ContainSubstring(`"locked":true`), ContainSubstring(`"owner":"job-17"`)))
		Expect(ask(acquire("kept"))).To(ContainSubstring("LOCK_ACQUISITION_FAILED"))
		Expect(ask(call("release", `{"key":"kept","owner":"job-17"}`))).To(ContainSubstring(`"released":true`))
	})
})

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
