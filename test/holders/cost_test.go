package holders_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// counts are the API server's own: the events that it sent of a kind, as "events Pod", and
// the requests for a resource, as "GET pods".
func counts(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(environment.Config)
	Expect(err).NotTo(HaveOccurred())
	text, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	Expect(err).NotTo(HaveOccurred())
	Expect(families).To(HaveKey("apiserver_request_total"))
	Expect(families).To(HaveKey("apiserver_watch_events_total"))
	counts := map[string]float64{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		if label(metric, "subresource") == "" {
			counts[label(metric, "verb")+" "+label(metric, "resource")] += metric.GetCounter().GetValue()
		}
	}
	for _, metric := range families["apiserver_watch_events_total"].GetMetric() {
		counts["events "+label(metric, "resource")] += metric.GetCounter().GetValue()
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

// inParallel runs the function for 0 to n-1.
func inParallel(n int, do func(int)) {
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			defer GinkgoRecover()
			for number := range numbers {
				do(number)
			}
		})
	}
	for number := range n {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
}

var _ = Describe("The cost of looking after holders", func() {
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("does not depend on the number of Pods that run", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		Eventually(func() float64 { return counts(ctx)["WATCH pods"] }).Should(BeNumerically(">", 0))
		expectHeld(ctx, lock)
		before := counts(ctx)
		inParallel(500, func(i int) { running(ctx, namespace, fmt.Sprintf("bystander-%d", i)) })
		expectHeld(ctx, lock)
		after := counts(ctx)
		for _, count := range []string{"events pods", "LIST pods", "WATCH pods"} {
			Expect(after[count]).To(Equal(before[count]), count)
		}
		Expect(after["events pods"]).NotTo(BeZero(), "the watch on the holder has begun with its state")

		By("counting events where there are some")
		setPhase(ctx, pod, corev1.PodFailed, "")
		expectReleased(ctx, lock)
		Expect(counts(ctx)["events pods"]).To(BeNumerically(">", after["events pods"]))
	})

	It("is nothing for locks that are held for a moment", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		known := held(ctx, namespace, "known", podRef(running(ctx, namespace, "known")))
		expectHeld(ctx, known)
		before := counts(ctx)
		for range 20 {
			lock := held(ctx, namespace, "report", podRef(pod))
			Expect(alice.Delete(ctx, lock)).To(Succeed())
		}
		Expect(counts(ctx)["WATCH pods"]).To(Equal(before["WATCH pods"]))
	})

	It("is a release within 1.5 seconds in the median of 50 holders", func(ctx context.Context) {
		const holders = 50
		startOperator(ctx, nil)
		watch, err := admin.Watch(ctx, &v1alpha1.LockList{}, client.InNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		pods := make([]*corev1.Pod, holders)
		inParallel(holders, func(i int) {
			pods[i] = running(ctx, namespace, fmt.Sprintf("worker-%d", i))
			held(ctx, namespace, pods[i].Name, podRef(pods[i]))
		})
		expectHeld(ctx, stored(ctx, namespace, pods[0].Name))

		released := make(chan map[string]time.Time, 1)
		go func() {
			at := map[string]time.Time{}
			for event := range watch.ResultChan() {
				if lock, ok := event.Object.(*v1alpha1.Lock); ok && event.Type == "DELETED" {
					at[lock.Name] = time.Now()
				}
				if len(at) == holders {
					break
				}
			}
			released <- at
		}()
		ended := make([]time.Time, holders)
		inParallel(holders, func(i int) {
			if i%2 == 0 {
				remove(ctx, pods[i])
			} else {
				setPhase(ctx, pods[i], corev1.PodFailed, "Evicted")
			}
			ended[i] = time.Now()
		})
		var at map[string]time.Time
		Eventually(released).Should(Receive(&at))
		taken := make([]time.Duration, holders)
		for i, pod := range pods {
			taken[i] = max(0, at[pod.Name].Sub(ended[i]))
		}
		slices.Sort(taken)
		AddReportEntry("from the end of a holder to the release", fmt.Sprintf("median %s, longest %s", taken[holders/2], taken[holders-1]))
		Expect(taken[holders/2]).To(BeNumerically("<=", 1500*time.Millisecond))
	})
})

func stored(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	var lock v1alpha1.Lock
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, &lock)).To(Succeed())
	return &lock
}
