//go:build timing

package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/timing"
)

var _ = Describe("Both doors", Label("timing"), func() {
	It("take about the same time", func(ctx context.Context) {
		alice := worker(ctx, "alice", everything...)
		const rounds = 300
		byREST := func() error {
			held := alice.do(ctx, http.MethodPost, "/rest", `{"ttl_seconds":60}`).lock()
			Expect(alice.do(ctx, http.MethodDelete, "/rest", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
			return nil
		}
		byForrst := func() error {
			owner := alice.forrst(ctx, "acquire", `{"key":"forrst","ttl":{"value":1,"unit":"minute"}}`)["owner"]
			alice.forrst(ctx, "release", fmt.Sprintf(`{"key":"lock:forrst","owner":%q}`, owner))
			return nil
		}
		compared, err := timing.Compare(rounds, byREST, byForrst)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("an acquire and release by REST, and by Forrst as the floor: %v", compared), ReportEntryVisibilityAlways)
		Expect(compared.Ratio(0.5)).To(BeNumerically("<", 1.25))
	})
})

var _ = Describe("A list that is continued", Label("timing"), func() {
	It("is refused at once if no page was continued so", func(ctx context.Context) {
		// The API server would wait three seconds.
		Expect(continueForged(ctx, worker(ctx, "alice", everything...))).To(BeNumerically("<=", time.Second))
	})
})
