package holders_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// requests counts what the operator asks the API server: about Pods, and what it deletes.
type requests struct {
	http.RoundTripper
	watches, others, deletes atomic.Int32
	// open is how many of the watches are.
	open atomic.Int32
	// told is how many bytes the watches have brought.
	told atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	switch {
	case request.Method == http.MethodDelete:
		r.deletes.Add(1)
	case !strings.Contains(request.URL.Path, "/pods"):
	case request.URL.Query().Has("watch"):
		r.watches.Add(1)
		// An informer has its watch end after five to ten minutes and begins another, which would count, too.
		patient := request.Clone(request.Context())
		query := patient.URL.Query()
		query.Set("timeoutSeconds", "36000")
		patient.URL.RawQuery = query.Encode()
		response, err := r.RoundTripper.RoundTrip(patient)
		if err == nil {
			r.open.Add(1)
			response.Body = &countedBody{ReadCloser: response.Body, bytes: &r.told, closed: sync.OnceFunc(func() { r.open.Add(-1) })}
		}
		return response, err
	default:
		r.others.Add(1)
	}
	return r.RoundTripper.RoundTrip(request)
}

type countedBody struct {
	io.ReadCloser
	bytes  *atomic.Int64
	closed func()
}

// Close implements [io.Closer].
func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// startCounted runs an operator whose requests are counted.
func startCounted(ctx context.Context, change func(*holders.Reconciler)) *requests {
	GinkgoHelper()
	counted := &requests{}
	manager, err := environment.NewManagerFor(func(config *rest.Config) {
		config.Wrap(func(base http.RoundTripper) http.RoundTripper {
			counted.RoundTripper = base
			return counted
		})
	})
	Expect(err).NotTo(HaveOccurred())
	runOperator(ctx, manager, leadership.Always(), change)
	return counted
}

// inTurn calls the function with 0 to n-1.
func inTurn(n int, do func(int)) {
	GinkgoHelper()
	for number := range n {
		do(number)
	}
}

// inParallel does the same, some of them at a time.
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
		counted := startCounted(ctx, func(*holders.Reconciler) {})
		pod := running(ctx, namespace, "worker")
		lock := held(ctx, namespace, "report", podRef(pod))
		Eventually(counted.watches.Load).Should(BeEquivalentTo(2), "one on the Pods that have ended, one on the holder")
		expectHeld(ctx, lock)
		others, told := counted.others.Load(), counted.told.Load()
		Expect(told).NotTo(BeZero())
		inParallel(500, func(i int) { running(ctx, namespace, fmt.Sprintf("bystander-%d", i)) })
		expectHeld(ctx, lock)
		Expect(counted.watches.Load()).To(BeEquivalentTo(2))
		Expect(counted.others.Load()).To(Equal(others))
		AddReportEntry("bytes from watches meanwhile", counted.told.Load()-told, ReportEntryVisibilityFailureOrVerbose)
		// A watch says from time to time that it is there; 500 Pods and their phases would make
		// a thousand events.
		Expect(counted.told.Load() - told).To(BeNumerically("<", 100_000))

		setPhase(ctx, pod, corev1.PodFailed, "")
		expectReleased(ctx, lock)
	})

	It("is nothing for locks that are held for less than a second", func(ctx context.Context) {
		// By its clock, even locks that a busy machine is slow to delete are as young.
		behind := &testenv.SteppedClock{}
		behind.Step(-time.Minute)
		counted := startCounted(ctx, func(reconciler *holders.Reconciler) { reconciler.Clock = behind })
		pod := running(ctx, namespace, "worker")
		Eventually(counted.watches.Load).Should(BeEquivalentTo(1))
		others := counted.others.Load()
		for range 20 {
			lock := held(ctx, namespace, "report", podRef(pod))
			Expect(alice.Delete(ctx, lock)).To(Succeed())
		}
		Expect(counted.watches.Load()).To(BeEquivalentTo(1))
		Expect(counted.others.Load()).To(Equal(others))
	})

	DescribeTable("is one delete for each of many holders that end, and a read of those that are still there", func(
		ctx context.Context, holders int, doAll func(int, func(int)),
	) {
		endHolders(ctx, namespace, holders, doAll)
	},
		Entry("one after the other", 50, inTurn),
		Entry("all at once", 500, inParallel),
	)
})

// endHolders makes Pods that hold locks and ends them, counts what the operator asks for meanwhile, and returns how long
// after the end of each holder its lock was released.
func endHolders(ctx context.Context, namespace string, count int, doAll func(int, func(int))) (taken []time.Duration) {
	GinkgoHelper()
	counted := startCounted(ctx, func(*holders.Reconciler) {})
	pods := make([]*corev1.Pod, count)
	inParallel(count, func(i int) {
		pods[i] = running(ctx, namespace, fmt.Sprintf("worker-%d", i))
		held(ctx, namespace, pods[i].Name, podRef(pods[i]))
	})
	Eventually(counted.open.Load).Should(BeEquivalentTo(count+1), "one on the Pods that have ended, one on each holder")
	expectHeld(ctx, stored(ctx, namespace, pods[0].Name))
	Expect(counted.watches.Load()).To(BeEquivalentTo(count + 1))
	Expect(counted.others.Load()).To(BeEquivalentTo(count), "a read of each holder")

	changes := fixture.Watch(ctx, admin, &v1alpha1.LockList{}, client.InNamespace(namespace))
	released := make(chan map[string]time.Time, 1)
	go func() {
		at := map[string]time.Time{}
		for event := range changes {
			if lock, ok := event.Object.(*v1alpha1.Lock); ok && event.Type == "DELETED" {
				at[lock.Name] = time.Now()
			}
			if len(at) == count {
				break
			}
		}
		released <- at
	}()
	ended := make([]time.Time, count)
	doAll(count, func(i int) {
		if i%2 == 0 {
			remove(ctx, pods[i])
		} else {
			setPhase(ctx, pods[i], corev1.PodFailed, "Evicted")
		}
		ended[i] = time.Now()
	})
	var at map[string]time.Time
	Eventually(released).Should(Receive(&at))
	Expect(at).To(HaveLen(count), "deletions that the watch has told of")
	for i, pod := range pods {
		taken = append(taken, max(0, at[pod.Name].Sub(ended[i])))
	}
	Expect(counted.deletes.Load()).To(BeEquivalentTo(count))
	Expect(counted.others.Load()).To(BeEquivalentTo(count+count/2), "a read of each Pod that is still there")
	Eventually(counted.open.Load).Should(BeEquivalentTo(1))
	Expect(counted.watches.Load()).To(BeEquivalentTo(count + 1))
	return taken
}

func stored(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	var lock v1alpha1.Lock
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, &lock)).To(Succeed())
	return &lock
}
