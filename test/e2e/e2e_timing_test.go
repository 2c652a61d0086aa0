//go:build timing

package e2e_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/timing"
)

var _ = Describe("The development cluster", Label("timing"), func() {
	It("serves the first lock within 15 seconds", func(ctx context.Context) {
		launched := time.Now()
		own := startCluster()
		Expect(own.acquire(ctx, "first", "job-17", 60)).To(beAcquired())
		took := time.Since(launched)
		AddReportEntry("time to the first lock", took.String(), ReportEntryVisibilityAlways)
		Expect(took).To(BeNumerically("<", 15*time.Second))
	})
})

var _ = Describe("An expired lock", Label("timing"), func() {
	It("is gone within 100 ms in the median, beside a thousand live ones", func(ctx context.Context) {
		late := expireBeside(ctx, 50, 1000)
		AddReportEntry("time from expiry to deletion",
			fmt.Sprintf("min %s, median %s, max %s", late[0], timing.Quantile(late, 0.5), timing.Quantile(late, 1)), ReportEntryVisibilityAlways)
		Expect(timing.Quantile(late, 0.5)).To(BeNumerically("<=", 100*time.Millisecond))
	})
})
