//go:build timing

package holders_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/timing"
)

// holderCount is how many locks name holders. HOLDERS=10000 is the full measurement.
func holderCount() int {
	GinkgoHelper()
	text, isSet := os.LookupEnv("HOLDERS")
	if !isSet {
		return 2000
	}
	count, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred())
	return count
}

var _ = Describe("The time that looking after holders takes", Label("timing"), func() {
	It("is 1.5 seconds in the median from the end of a holder to the release of its lock", func(ctx context.Context) {
		taken := endHolders(ctx, newNamespace(ctx), 50, inTurn)
		AddReportEntry("from the end of a holder to the release",
			fmt.Sprintf("median %s, longest %s", timing.Quantile(taken, 0.5), timing.Quantile(taken, 1)), ReportEntryVisibilityAlways)
		Expect(timing.Quantile(taken, 0.5)).To(BeNumerically("<=", 1500*time.Millisecond))
	})

	It("does not slow callers down at a change of leader, however many locks name holders", func(ctx context.Context) {
		before, after := changeLeader(ctx, holderCount(), 40*time.Second, 20*time.Millisecond)
		Expect(after.acquires).To(BeNumerically("<=", 2*before.acquires))
		Expect(after.renewals).To(BeNumerically("<=", 2*before.renewals))
	})
})
