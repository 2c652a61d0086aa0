package traces_test

import (
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
	"forrst.dev/lock-operator/tracing/otlp"
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
		for name, isTold := range map[string]bool{ofAlice: true, ofBob: false} {
			f := startTracedOn(ctx, server.Config(environment.Operator().Config), otlp.Options{TellsAPIServer: isTold})
			caller := worker(ctx, f.url, "caller-"+name[:1], name, everything...)
			Eventually(func() int {
				status, _ := caller.do(ctx, http.MethodPost, "/v1/namespaces/"+namespace+"/locks/"+name[:1], `{"ttl_seconds":60}`)
				return status
			}).WithTimeout(patience).Should(Equal(http.StatusCreated), "this API server takes a moment to know the rights")
			f.stop()
		}
		Eventually(func() []string { return ofAPIServer(received) }).WithTimeout(patience).Should(ConsistOf(ofAlice, ""))
	})
})
