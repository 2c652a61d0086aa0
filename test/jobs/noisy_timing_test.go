//go:build timing

package jobs_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The operator of locked Jobs with many idle Jobs of one namespace", Label("timing"), func() {
	It("starts Jobs of another namespace, and suspends those of either that lose their locks, without delay", func(ctx context.Context) {
		// At renewalDelay for each renewal, a round over all of them takes the 32 passes at a time about 12 s, and they are due
		// again after 7 s: a pass that waits for those before it waits for about 6 s. Promptly is below that, and above what
		// two passes take that wait for the next free worker.
		const idleJobs, idleTTL, promptly = 400, "21s", 4 * time.Second
		Expect(startAmongIdle(ctx, idleJobs, idleTTL)).To(BeNumerically("<", promptly))
		expectNoViolations(ctx)
	})
})
