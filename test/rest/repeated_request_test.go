package rest_test

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A request that waits for a free lock, and its repetition at the same time", func() {
	It("get one grant", func(ctx context.Context) {
		alice := worker(ctx, "alice", everything...)
		for round := range 5 {
			request := func() answer {
				return alice.do(ctx, http.MethodPost, fmt.Sprint("/k", round), `{"ttl_seconds":60,"wait_seconds":30}`, "Idempotency-Key", fmt.Sprintf("the-request-of-round-%d", round))
			}
			repeated := make(chan answer, 1)
			go func() {
				defer close(repeated) // Also if it fails.
				defer GinkgoRecover()
				repeated <- request()
			}()
			first, second := request(), <-repeated
			Expect([]int{first.status, second.status}).To(HaveEach(http.StatusCreated), "%s; %s", first.body, second.body)
			Expect(second.lock().LockToken).To(Equal(first.lock().LockToken))
			Expect(second.lock().FencingToken).To(Equal(first.lock().FencingToken))
		}
	})
})
