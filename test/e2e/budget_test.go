package e2e_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

var heartbeatName = types.NamespacedName{Namespace: testenv.OperatorNamespace, Name: "lock-operator--heartbeat"}

// requests are the API server's own counts: requests for locks by verb, and calls of
// our webhook. The renewals of the heartbeat are left out.
func (c *cluster) requests(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(rest.CopyConfig(c.config()))
	Expect(err).NotTo(HaveOccurred())
	const tries = 50
	for range tries {
		before := c.heartbeats(ctx)
		ownReads := c.ownReads
		text, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		// Parsing takes longer than a heartbeat.
		if c.heartbeats(ctx) == before {
			counts := lockRequests(text)
			counts["GET"] -= ownReads
			counts["PUT"] -= before
			return counts
		}
	}
	Fail("there was a heartbeat during each look at the metrics")
	return nil
}

// heartbeats returns how often the heartbeat was written.
func (c *cluster) heartbeats(ctx context.Context) float64 {
	GinkgoHelper()
	var heartbeat v1alpha1.Lock
	Expect(c.client().Get(ctx, heartbeatName, &heartbeat)).To(Succeed())
	c.ownReads++
	return float64(heartbeat.Generation)
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

var _ = Describe("The budget of API requests", Ordered, func() {
	// The API server counts the requests of all clients. In a cluster that other specs have used, locks
	// of theirs expire, and what an outage has left open is still looked after.
	var own *cluster
	BeforeAll(func(ctx context.Context) {
		own = startCluster()
		// The operator takes it a second after its start, and makes the grant anew if the answer shows
		// that its clock was wrong.
		Eventually(func() (int64, error) {
			var heartbeat v1alpha1.Lock
			err := own.client().Get(ctx, heartbeatName, &heartbeat)
			own.ownReads++
			return heartbeat.Generation, err
		}).WithTimeout(15 * time.Second).Should(BeNumerically(">", 2))
		DeferCleanup(func() {
			own.session.Terminate()
			Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit(0))
		})
	})

	It("is two writes, no read and no webhook call for an acquire and a release", func(ctx context.Context) {
		const cycles = 10
		before := own.requests(ctx)
		for range cycles {
			Expect(own.acquire(ctx, "budget", "job-17", 60)).To(beAcquired())
			Expect(own.call(ctx, "release", map[string]any{"key": "lock:budget", "owner": "job-17"}).Status).To(Equal(200))
			Expect(own.post(ctx, acquireBody("budget", "job-17", 60, true))).To(beAcquired())
		}
		after := own.requests(ctx)
		spent := map[string]float64{}
		for name, count := range after {
			if count != before[name] {
				spent[name] = count - before[name]
			}
		}
		Expect(spent).To(Equal(map[string]float64{"POST": 2 * cycles, "DELETE": 2 * cycles}))
	})

	It("includes one webhook call for a direct write", func(ctx context.Context) {
		before := own.requests(ctx)["webhook"]
		_, err := own.kubectl.Run(ctx, "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: counted}\nspec: {key: counted}\n", "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(own.requests(ctx)["webhook"]).To(Equal(before + 1))
		_, err = own.kubectl.Run(ctx, "", "delete", "lock", "counted")
		Expect(err).NotTo(HaveOccurred())
	})
})
