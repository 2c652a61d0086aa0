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

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	// idleJobs hold locks and run nothing. At renewalDelay for each renewal, a round over all of them
	// takes the 32 passes at a time about 12 s, and they are due again after 7 s: a pass that
	// waits for those before it waits for about 6 s.
	idleJobs     = 400
	idleTTL      = "21s"
	renewalDelay = time.Second
	// promptly is below that, and above what two passes take that wait for the next free worker.
	promptly = 4 * time.Second
)

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

var _ = Describe("The operator of locked Jobs with many idle Jobs of one namespace", func() {
	var noisy, quiet string
	BeforeEach(func(ctx context.Context) {
		noisy, quiet = newNamespace(ctx), newNamespace(ctx)
		var isSlow atomic.Bool
		startOperator(ctx, slowRenewals(noisy, &isSlow))
		for number := range idleJobs {
			create(ctx, makeJob(noisy, fmt.Sprintf("idle-%d", number), fmt.Sprintf("key-%d", number),
				annotated(v1alpha1.LockTTLAnnotation, idleTTL), func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(0)) }))
		}
		Eventually(func() int {
			var list batchv1.JobList
			Expect(admin.List(ctx, &list, inNamespace(noisy))).To(Succeed())
			started := 0
			for _, job := range list.Items {
				if !*job.Spec.Suspend {
					started++
				}
			}
			return started
		}).WithTimeout(2 * patience).WithPolling(time.Second).Should(Equal(idleJobs))
		isSlow.Store(true)
		first := lockOf(ctx, noisy, "key-0")
		Eventually(func() bool { return lockOf(ctx, noisy, "key-0").Spec.RenewTime.After(first.Spec.RenewTime.Time) }).Should(BeTrue())
	})
	AfterEach(expectNoViolations)

	// wantPromptly fails unless the condition soon holds, and returns after how long it did.
	wantPromptly := func(what string, isSo func() bool) {
		GinkgoHelper()
		begun := time.Now()
		Eventually(isSo).Should(BeTrue())
		took := time.Since(begun)
		AddReportEntry(what, took.String())
		Expect(took).To(BeNumerically("<", promptly), what)
	}
	isSuspended := func(ctx context.Context, job *batchv1.Job, wanted bool) func() bool {
		return func() bool { return *read(ctx, job).Spec.Suspend == wanted }
	}

	It("starts Jobs of another namespace, and suspends those of either that lose their locks, without delay", func(ctx context.Context) {
		for number := range 3 {
			key := fmt.Sprintf("key-%d", number)
			job := create(ctx, makeJob(quiet, fmt.Sprintf("other-%d", number), key))
			wantPromptly("a start in another namespace", isSuspended(ctx, job, false))
			Eventually(func() bool { return lockOf(ctx, quiet, key) != nil }).Should(BeTrue())
			Expect(testenv.RemoveLock(ctx, admin, quiet, lockOf(ctx, quiet, key).Name)).To(Succeed())
			wantPromptly("a stop in another namespace", func() bool { return strings.Contains(eventsOf(ctx, job)(), "LockLost") })

			idle := makeJob(noisy, fmt.Sprintf("idle-%d", number), key)
			Expect(testenv.RemoveLock(ctx, admin, noisy, lockOf(ctx, noisy, key).Name)).To(Succeed())
			wantPromptly("a stop in the same namespace", func() bool {
				return strings.Contains(eventsOf(ctx, read(ctx, idle))(), "LockLost")
			})
		}
	})
})
