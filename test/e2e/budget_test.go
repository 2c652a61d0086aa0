package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// spent has what the API server itself counts meanwhile: requests for locks by verb, and calls of our webhook.
func (c *cluster) spent(ctx context.Context, do func()) map[string]float64 {
	GinkgoHelper()
	before := c.requests(ctx)
	do()
	spent := c.requests(ctx)
	for name, count := range before {
		spent[name] -= count
	}
	return spent
}

func (c *cluster) requests(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(rest.CopyConfig(c.config()))
	Expect(err).NotTo(HaveOccurred())
	text, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	return lockRequests(text)
}

func lockRequests(text []byte) map[string]float64 {
	GinkgoHelper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	Expect(err).NotTo(HaveOccurred())
	Expect(families).To(HaveKey("apiserver_request_total"))

	counts := map[string]float64{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		if label(metric, "resource") == "locks" && label(metric, "verb") != "WATCH" {
			counts[label(metric, "verb")] += metric.GetCounter().GetValue()
		}
	}
	for _, metric := range families["apiserver_admission_webhook_request_total"].GetMetric() {
		if label(metric, "name") == "lock.forrst.dev" {
			counts["webhook"] += metric.GetCounter().GetValue()
		}
	}
	return counts
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// spendTwoWrites acquires and releases locks, and expects of each time two writes, no read and no webhook call.
func spendTwoWrites(ctx context.Context, own *cluster) {
	GinkgoHelper()
	const cycles = 20
	spent := own.spent(ctx, func() {
		for range cycles {
			Expect(own.acquire(ctx, "budget", "job-17", 60)).To(beAcquired())
			Expect(own.call(ctx, "release", map[string]any{"key": "lock:budget", "owner": "job-17"}).Status).To(Equal(200))
			Expect(own.post(ctx, acquireBody("budget", "job-17", 60, true))).To(beAcquired())
		}
	})
	Expect(spent).To(And(HaveKeyWithValue("POST", 2.0*cycles), HaveKeyWithValue("DELETE", 2.0*cycles)))
	delete(spent, "POST")
	delete(spent, "DELETE")
	for verb, count := range spent { // One more for each time would show. The controllers may read a lock to tell the time.
		Expect(count).To(BeNumerically("<", cycles/2), verb)
	}
}

// spendOneWebhookCall expects one for a direct write.
func spendOneWebhookCall(ctx context.Context, own *cluster) {
	GinkgoHelper()
	spent := own.spent(ctx, func() {
		_, err := own.kubectl.Run(ctx, "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: counted}\nspec: {key: counted}\n", "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	})
	Expect(spent).To(HaveKeyWithValue("webhook", 1.0))
	_, err := own.kubectl.Run(ctx, "", "delete", "lock", "counted")
	Expect(err).NotTo(HaveOccurred())
}
