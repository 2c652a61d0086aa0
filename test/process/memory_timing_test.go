//go:build timing

package process_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/test/support/timing"
)

var _ = Describe("A namespace that is filled up with locks and Jobs, on a machine of its own,", Label("timing"), func() {
	It("slows others down little, and by little more than its bounds", func(ctx context.Context) {
		const lag = 50
		var measured []latencies
		fillUp(ctx, lag, func(caller *caller) { measured = append(measured, caller.p99(ctx)) })
		before, during := measured[0], measured[1]
		AddReportEntry("p99", fmt.Sprintf("%v before, %v with them", before, during), ReportEntryVisibilityAlways)
		Expect(float64(during.acquire)).To(BeNumerically("<=", 3*float64(before.acquire)*during.slowness(before)), "%v before, %v with them", before, during)
	})
})

// latencies are 99th percentiles of what was measured in turns.
type latencies struct {
	// acquire is the time to acquire a lock and to release it.
	acquire time.Duration
	// floor is the time of as many bare writes, which no part of the operator sees.
	floor time.Duration
}

func (l latencies) String() string { return fmt.Sprintf("%s (floor %s)", l.acquire, l.floor) }

// slowness is how much slower machine and API server are than they were: 1 where they are not, and 2 at most, since the
// operator may be what slows them.
func (l latencies) slowness(before latencies) float64 {
	return min(max(1, float64(l.floor)/float64(before.floor)), 2)
}

// p99 acquires locks, and compares with an object that the API server stores and deletes for an administrator.
func (c *caller) p99(ctx context.Context) latencies {
	GinkgoHelper()
	const samples = 600
	acquires, floors := make([]time.Duration, 0, samples), make([]time.Duration, 0, samples)
	for number := range samples {
		begun := time.Now()
		Expect(c.acquire(ctx)).To(Succeed())
		acquires = append(acquires, time.Since(begun))

		bare := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprint("floor-", number)}}
		begun = time.Now()
		Expect(environment.Admin.Client.Create(ctx, bare)).To(Succeed())
		Expect(environment.Admin.Client.Delete(ctx, bare)).To(Succeed())
		floors = append(floors, time.Since(begun))
	}
	return latencies{acquire: timing.Quantile(acquires, 0.99), floor: timing.Quantile(floors, 0.99)}
}
