package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

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

var _ = Describe("A request that waits for a held lock, and its repetition", func() {
	const waiting = `{"ttl_seconds":60,"wait_seconds":50}`
	var alice, bob caller
	var held string
	var repeated []<-chan answer
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		held = bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":600}`).lock().LockToken
		repeated = nil
	})
	// begin sends the request of alice once more, and returns when it waits. Then gets its answer, before others may.
	begin := func(ctx context.Context, then func(answer)) {
		GinkgoHelper()
		answers := make(chan answer, 1)
		go func() {
			defer close(answers) // Also if it fails.
			defer GinkgoRecover()
			got := alice.do(ctx, http.MethodPost, "/k", waiting, "Idempotency-Key", "0123456789abcdef")
			then(got)
			answers <- got
		}()
		repeated = append(repeated, answers)
		Eventually(func() int {
			return strings.Count(string(bob.do(ctx, http.MethodGet, "/k/waiters", "").body), namespace+":alice")
		}).WithTimeout(patience).Should(Equal(len(repeated)))
	}
	release := func(ctx context.Context, from caller, token string) {
		GinkgoHelper()
		Expect(from.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", token).status).To(Equal(http.StatusNoContent))
	}
	nothing := func(answer) {}

	It("wait as one, and get one grant", func(ctx context.Context) {
		for range 3 {
			begin(ctx, nothing)
		}
		release(ctx, bob, held)
		var answered []answer
		for _, each := range repeated {
			var got answer
			// The lock is not released meanwhile, so no other wait ends but by its bound, which is longer.
			Eventually(each).WithTimeout(patience).Should(Receive(&got))
			Expect(got.status).To(Equal(http.StatusCreated), "%s", got.body)
			answered = append(answered, got)
		}
		for _, got := range answered[1:] {
			Expect(got.lock().LockToken).To(Equal(answered[0].lock().LockToken))
			Expect(got.lock().FencingToken).To(Equal(answered[0].lock().FencingToken))
		}
		release(ctx, alice, answered[0].lock().LockToken)
		Expect(alice.do(ctx, http.MethodGet, "/k", "").status).To(Equal(http.StatusNotFound))
	})

	It("get no second grant when the first is released at once", func(ctx context.Context) {
		releaseAtOnce := func(got answer) {
			if got.status == http.StatusCreated {
				token := got.lock().LockToken
				// The other call may have found the grant and told of it, so that its caller releases it, too.
				Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", token).status).To(Or(Equal(http.StatusNoContent), Equal(http.StatusGone)))
			}
		}
		begin(ctx, releaseAtOnce)
		begin(ctx, releaseAtOnce)
		release(ctx, bob, held)
		var tokens []int64
		for _, each := range repeated {
			var got answer
			Eventually(each).WithTimeout(patience).Should(Receive(&got))
			if got.status == http.StatusCreated {
				tokens = append(tokens, *got.lock().FencingToken)
				continue
			}
			Expect(got.status).To(Equal(http.StatusGone), "%s", got.body)
			Expect(got.problem().Type).To(Equal("urn:lock-operator:problem:lock-ended"))
		}
		Expect(tokens).NotTo(BeEmpty())
		Expect(tokens).To(HaveEach(tokens[0]))
		Expect(alice.do(ctx, http.MethodGet, "/k", "").status).To(Equal(http.StatusNotFound))
	})
})
