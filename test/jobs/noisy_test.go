package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// renewalDelay is how much longer each renewal takes.
const renewalDelay = time.Second

// slowRenewals delays the renewals of locks in one namespace while isSlow, as an API server does that has too much
// to do.
func slowRenewals(namespace string, isSlow *atomic.Bool) func(*rest.Config) {
	return func(config *rest.Config) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return slow{next, "/namespaces/" + namespace + "/locks/", isSlow}
		})
	}
}

type slow struct {
	next   http.RoundTripper
	path   string
	isSlow *atomic.Bool
}

// RoundTrip implements [http.RoundTripper].
func (s slow) RoundTrip(request *http.Request) (*http.Response, error) {
	if s.isSlow.Load() && request.Method == http.MethodPut && strings.Contains(request.URL.Path, s.path) {
		select {
		case <-time.After(renewalDelay):
		case <-request.Context().Done():
		}
	}
	return s.next.RoundTrip(request)
}

var _ = Describe("The operator of locked Jobs with idle Jobs of one namespace", func() {
	AfterEach(expectNoViolations)

	It("starts Jobs of another namespace, and suspends those of either that lose their locks", func(ctx context.Context) {
		startAmongIdle(ctx, 64, "30s")
	})
})

// startAmongIdle has so many Jobs hold locks and run nothing while the renewals of their namespace are slow, and starts and
// stops others. It returns the longest time that it waited for one of those.
func startAmongIdle(ctx context.Context, idleJobs int, idleTTL string) (longest time.Duration) {
	GinkgoHelper()
	noisy, quiet := newNamespace(ctx), newNamespace(ctx)
	var isSlow atomic.Bool
	startOperator(ctx, slowRenewals(noisy, &isSlow))
	for number := range idleJobs {
		create(ctx, makeJob(noisy, fmt.Sprintf("idle-%d", number), fmt.Sprintf("key-%d", number),
			annotated(v1alpha1.LockTTLAnnotation, idleTTL), func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(0)) }))
	}
	Eventually(func() int {
		var list batchv1.JobList
		Expect(admin.List(ctx, &list, client.InNamespace(noisy))).To(Succeed())
		started := 0
		for _, job := range list.Items {
			if !*job.Spec.Suspend {
				started++
			}
		}
		return started
	}).WithTimeout(2 * patience).WithPolling(200 * time.Millisecond).Should(Equal(idleJobs))
	isSlow.Store(true)
	first := lockOf(ctx, noisy, "key-0")
	Eventually(func() bool { return lockOf(ctx, noisy, "key-0").Spec.RenewTime.After(first.Spec.RenewTime.Time) }).Should(BeTrue())

	wait := func(what string, isSo func() bool) {
		GinkgoHelper()
		begun := time.Now()
		Eventually(isSo).Should(BeTrue(), what)
		took := time.Since(begun)
		AddReportEntry(what, took.String())
		longest = max(longest, took)
	}
	for number := range 3 {
		key := fmt.Sprintf("key-%d", number)
		job := create(ctx, makeJob(quiet, fmt.Sprintf("other-%d", number), key))
		wait("a start in another namespace", func() bool { return !*read(ctx, job).Spec.Suspend })
		Eventually(func() bool { return lockOf(ctx, quiet, key) != nil }).Should(BeTrue())
		Expect(testenv.RemoveLock(ctx, admin, quiet, v1alpha1.FullKeyOf(key).ObjectName())).To(Succeed())
		wait("a stop in another namespace", func() bool { return strings.Contains(eventsOf(ctx, job)(), "LockLost") })

		idle := read(ctx, makeJob(noisy, fmt.Sprintf("idle-%d", number), key))
		Expect(testenv.RemoveLock(ctx, admin, noisy, v1alpha1.FullKeyOf(key).ObjectName())).To(Succeed())
		wait("a stop in the same namespace", func() bool { return strings.Contains(eventsOf(ctx, idle)(), "LockLost") })
	}
	return longest
}
