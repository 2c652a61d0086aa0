package holders_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// waitingCalls returns how many calls the façade says wait for a lock.
func waitingCalls(metrics prometheus.Gatherer) func() (float64, error) {
	return func() (float64, error) {
		families, err := metrics.Gather()
		if err != nil {
			return 0, err
		}
		for _, family := range families {
			if family.GetName() == "lock_operator_facade_waiting_calls" {
				return family.GetMetric()[0].GetGauge().GetValue(), nil
			}
		}
		return 0, fmt.Errorf("no such metric among %d", len(families))
	}
}

// callAndWait sends a call on a connection of its own, and does not wait for the answer.
func callAndWait(ctx context.Context, url, token, arguments string) net.Conn {
	GinkgoHelper()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = connection.Close() }) // The spec may have closed it.
	Expect(vendorCall(ctx, url, token, "acquire", arguments).Write(connection)).To(Succeed())
	return connection
}

var _ = Describe("A Pod that waits for a lock", func() {
	var (
		namespace, url string
		metrics        *prometheus.Registry
		holderToken    string
	)

	BeforeEach(func(ctx context.Context) {
		namespace, metrics = newNamespace(ctx), prometheus.NewRegistry()
		environment.AllowWorkers(ctx, namespace)
		startOperator(ctx, nil)
		url = environment.StartFacade(ctx, "", func(config *testfacade.Settings) { config.Server.Metrics = metrics })
		_, holderToken = runningWithToken(ctx, namespace, "holder")
		response, err := http.DefaultClient.Do(vendorCall(ctx, url, holderToken, "acquire", `{"key":"report","owner":"the-holder"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusOK))
	})

	It("leaves the queue with its connection", func(ctx context.Context) {
		dead, deadToken := runningWithToken(ctx, namespace, "dead")
		next, nextToken := runningWithToken(ctx, namespace, "next")
		changes := fixture.Watch(ctx, admin, &v1alpha1.LockList{}, client.InNamespace(namespace))

		connection := callAndWait(ctx, url, deadToken, `{"key":"report","block":{"value":60,"unit":"second"}}`)
		Eventually(waitingCalls(metrics)).Should(BeEquivalentTo(1))
		answered := make(chan time.Time, 1)
		go func() {
			defer GinkgoRecover()
			request := vendorCall(ctx, url, nextToken, "acquire", `{"key":"report","block":{"value":60,"unit":"second"}}`)
			response, err := http.DefaultClient.Do(request)
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = response.Body.Close() }()
			var answer struct {
				Errors []json.RawMessage `json:"errors"`
			}
			Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
			Expect(answer.Errors).To(BeEmpty())
			answered <- time.Now()
		}()
		Eventually(waitingCalls(metrics)).Should(BeEquivalentTo(2))

		remove(ctx, dead)
		cut := time.Now()
		Expect(connection.Close()).To(Succeed())
		Eventually(waitingCalls(metrics)).WithPolling(time.Millisecond).Should(BeEquivalentTo(1))
		AddReportEntry("from the end of the connection until the caller has left the queue", time.Since(cut).String(), ReportEntryVisibilityFailureOrVerbose)

		released := time.Now()
		response, err := http.DefaultClient.Do(vendorCall(ctx, url, holderToken, "release", `{"key":"report","owner":"the-holder"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		var at time.Time
		Eventually(answered).Should(Receive(&at))
		AddReportEntry("from the release to the grant of the next caller", at.Sub(released).String(), ReportEntryVisibilityFailureOrVerbose)
		Expect(stored(ctx, namespace, "report").Spec.HolderRef).To(Equal(podRef(next)))
		for isOver := false; !isOver; {
			var change watch.Event
			Eventually(changes).Should(Receive(&change))
			lock, ok := change.Object.(*v1alpha1.Lock)
			Expect(ok).To(BeTrue())
			Expect(lock.Spec.HolderRef.UID).NotTo(Equal(dead.UID), "the lock went to the dead Pod")
			isOver = lock.Spec.HolderRef.UID == next.UID
		}
	})

	It("leaves the queue with its block if its connection hangs", func(ctx context.Context) {
		dead, deadToken := runningWithToken(ctx, namespace, "dead")
		began := time.Now()
		callAndWait(ctx, url, deadToken, `{"key":"report","block":{"value":2,"unit":"second"}}`)
		Eventually(waitingCalls(metrics)).WithPolling(time.Millisecond).Should(BeEquivalentTo(1))
		remove(ctx, dead)
		Eventually(waitingCalls(metrics)).Should(BeZero())
		Expect(time.Since(began)).To(BeNumerically(">=", 2*time.Second))
		AddReportEntry("until a caller with a block of 2 s has left the queue", time.Since(began).String(), ReportEntryVisibilityFailureOrVerbose)
	})
})
