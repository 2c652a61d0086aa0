//go:build timing

package auth_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/timing"
)

// load begins cycles at a rate, whether or not earlier ones have ended, and waits until all have.
func (t *tenant) load(ctx context.Context, perSecond int, length time.Duration) (begun int) {
	ctx, cancel := context.WithTimeout(ctx, length+patience)
	defer cancel()
	var cycles sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for end := time.After(length); ; begun++ {
		select {
		case <-end:
			cycles.Wait()
			return begun
		case <-ticker.C:
			number := begun
			cycles.Go(func() { t.cycle(ctx, number) })
		}
	}
}

// p99 is the time in which 99 of 100 cycles were done.
func (t *tenant) p99() time.Duration { return timing.Quantile(t.took, 0.99) }

var _ = Describe("A façade with several tenants under load", Label("timing"), func() {
	// One tenant asks for 4 cycles a second, the other one for 400, without waiting for answers. The
	// fair share of the first is all that it asks for, since that is less than half of what the API
	// server can do. It keeps 80 % of it: of its cycles, so many are done without a refusal, and each
	// of 99 in 100 of them within a second. Without rates the calls of the other tenant queue up before
	// the API server, and one takes many seconds.
	It("leaves a tenant its fair share while another one asks for a hundred times as much", func(ctx context.Context) {
		const quietRate, length = 4, 10 * time.Second
		facade := startReplica(ctx, "--facade-max-rate-per-caller=20")
		quiet, loud := newTenant(ctx, facade), newTenant(ctx, facade)
		quiet.awaitAccess(ctx)
		loud.awaitAccess(ctx)
		var loads sync.WaitGroup
		var asked, askedLoudly int
		loads.Go(func() { asked = quiet.load(ctx, quietRate, length) })
		loads.Go(func() { askedLoudly = loud.load(ctx, 100*quietRate, length) })
		loads.Wait()
		AddReportEntry("cycles", fmt.Sprintf("%d of %d, p99 %s, refused %d; of the other tenant %d of %d, p99 %s, refused %d",
			len(quiet.took), asked, quiet.p99(), quiet.refused, len(loud.took), askedLoudly, loud.p99(), loud.refused))

		Expect(quiet.failed).To(BeEmpty())
		Expect(float64(len(quiet.took))).To(BeNumerically(">=", 0.8*float64(asked)))
		Expect(quiet.p99()).To(BeNumerically("<=", time.Second))
		Expect(loud.refused).To(BeNumerically(">", askedLoudly/2), "the other tenant was let through")
		Expect(loud.refusedReleases).To(BeZero(), "releases have a rate of their own")
		// It has its own share as well.
		Expect(float64(len(loud.took))).To(BeNumerically(">=", 0.8*20*length.Seconds()))
	})

	It("serves callers in seconds while a client without a token opens thousands of idle connections", func(ctx context.Context) {
		caller := callAmongIdleConnections(ctx, 5*time.Second)
		Expect(caller.failed).To(BeEmpty())
		Expect(caller.p99()).To(BeNumerically("<=", 2*time.Second))
	})
})
