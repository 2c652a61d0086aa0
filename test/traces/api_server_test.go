package traces_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/collector"
)

// ofAPIServer returns the ids of the traces that the API server's spans of creates of locks link to, empty for
// one without a link.
func ofAPIServer(received *collector.Collector) (linked []string) {
	for _, span := range received.Spans() {
		if !strings.HasPrefix(span.GetName(), "POST /apis/forrst.dev/v1alpha1/namespaces/{:namespace}/locks") {
			continue
		}
		id := ""
		for _, link := range span.GetLinks() {
			id = hex.EncodeToString(link.GetTraceId())
		}
		linked = append(linked, id)
	}
	return linked
}

var _ = Describe("An API server that sends traces", func() {
	It("links its own to those that it is told of", func(ctx context.Context) {
		received := collect(ctx, "grpc")
		config := filepath.Join(GinkgoT().TempDir(), "tracing.yaml")
		Expect(os.WriteFile(config, fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n",
			strings.TrimPrefix(received.Endpoint, "http://")), 0o600)).To(Succeed())
		server, err := environment.AnotherAPIServer("tracing-config-file=" + config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Stop)
		operator := environment.Operator()
		kubeconfig, err := os.ReadFile(operator.Kubectl.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		first, second := strings.TrimSuffix(operator.Config.Host, "/"), server.Config(operator.Config).Host
		Expect(string(kubeconfig)).To(ContainSubstring(first))
		kubectl, err := environment.Kubectl(bytes.ReplaceAll(kubeconfig, []byte(first), []byte(second)))
		Expect(err).NotTo(HaveOccurred())
		for _, test := range []struct{ name, traceID, flag string }{{"told", ofAlice, "--trace-api-server"}, {"by-default", ofBob, "--trace-api-server=false"}} {
			program, who := startProgram(ctx, kubectl, test.name, test.traceID, test.flag)
			Eventually(func() int {
				status, _ := who.do(ctx, http.MethodPost, "/v1/namespaces/"+namespace+"/locks/"+test.name, `{"ttl_seconds":60}`)
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusCreated), "this API server takes a moment to know the rights")
			program.Terminate().Wait(patience)
		}
		Eventually(func() []string { return ofAPIServer(received) }).WithTimeout(patience).Should(ConsistOf(ofAlice, ""))
	})
})
