package rest_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// grant is a lock of alice, acquired through the REST door.
type grant struct {
	key, token, etag, idempotencyKey string
	fencingToken                     int64
}

// call is one of two calls about a grant that are made at once. It returns the status of the answer.
type call struct {
	name string
	// ends says that the call ends a grant if it is answered with 204.
	ends bool
	do   func(ctx context.Context, alice, breaker caller, held grant) int
	// others are the other statuses that it may be answered with, beside one that has ended the grant. The first is the only one
	// of a call beside which nothing ends the grant.
	others []int
}

func release(ctx context.Context, alice caller, held grant, headers ...string) int {
	GinkgoHelper()
	return alice.do(ctx, http.MethodDelete, "/"+held.key, "", append(headers, "X-Lock-Token", held.token)...).status
}

func force(ctx context.Context, breaker caller, held grant, parameters string) int {
	GinkgoHelper()
	return breaker.do(ctx, http.MethodDelete, "/"+held.key+"?force=true&reason=stuck"+parameters, "").status
}

var calls = []call{
	{"release", true, func(ctx context.Context, alice, _ caller, held grant) int { return release(ctx, alice, held) }, []int{http.StatusGone}},
	{"conditional release", true, func(ctx context.Context, alice, _ caller, held grant) int {
		return release(ctx, alice, held, "If-Match", held.etag)
	}, []int{http.StatusGone, http.StatusPreconditionFailed}},
	{"forced release", true, func(ctx context.Context, _, breaker caller, held grant) int { return force(ctx, breaker, held, "") }, []int{http.StatusNotFound}},
	{"forced release of the grant", true, func(ctx context.Context, _, breaker caller, held grant) int {
		return force(ctx, breaker, held, fmt.Sprintf("&fencing_token=%d", held.fencingToken))
	}, []int{http.StatusNotFound, http.StatusPreconditionFailed}},
	{"forced release through the Forrst door", true, func(ctx context.Context, _, breaker caller, held grant) int {
		_, code := breaker.callForrst(ctx, "urn:cline:forrst:ext:atomic-lock:fn:force-release", fmt.Sprintf(`{"key":"lock:%s","reason":"stuck"}`, held.key))
		switch code {
		case "":
			return http.StatusNoContent
		case "LOCK_NOT_FOUND", "LOCK_ALREADY_RELEASED":
			return http.StatusNotFound
		}
		Fail("the Forrst door answered " + code)
		return 0
	}, []int{http.StatusNotFound}},
	{"renewal", false, func(ctx context.Context, alice, _ caller, held grant) int {
		return alice.do(ctx, http.MethodPut, "/"+held.key, `{"ttl_seconds":60}`, "X-Lock-Token", held.token).status
	}, []int{http.StatusOK, http.StatusGone}},
	{"repeated request", false, func(ctx context.Context, alice, _ caller, held grant) int {
		return alice.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60}`, "Idempotency-Key", held.idempotencyKey).status
	}, []int{http.StatusCreated, http.StatusGone, http.StatusLocked}},
	{"request of another caller", false, func(ctx context.Context, _, breaker caller, held grant) int {
		return breaker.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60}`).status
	}, []int{http.StatusLocked, http.StatusCreated}},
}

// callsBesideAWaiter are those that leave the next grant to the caller that waits: a forced release of any grant may rightly end
// that, and another request may come before it.
func callsBesideAWaiter() []call {
	return slices.DeleteFunc(slices.Clone(calls), func(each call) bool {
		return slices.Contains([]string{"forced release", "forced release through the Forrst door", "request of another caller", "repeated request"}, each.name)
	})
}

// pairRounds is how often two calls are made at once: twice, unless the environment variable PAIR_ROUNDS says otherwise.
func pairRounds() int {
	GinkgoHelper()
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("PAIR_ROUNDS"), "2"))
	Expect(err).NotTo(HaveOccurred())
	return rounds
}

// Who ends a grant is told so, and nobody else is.
var _ = Describe("Two calls at once about a grant", func() {
	var alice, bob, breaker caller
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		breaker = worker(ctx, "breaker", append(slices.Clone(everything), "force-release")...)
	})
	acquire := func(ctx context.Context, round int) grant {
		GinkgoHelper()
		held := grant{key: fmt.Sprint("k", round), idempotencyKey: fmt.Sprintf("the-request-of-round-%d", round)}
		answered := alice.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60}`, "Idempotency-Key", held.idempotencyKey)
		Expect(answered.status).To(Equal(http.StatusCreated), "%s", answered.body)
		described := answered.lock()
		held.token, held.fencingToken, held.etag = described.LockToken, *described.FencingToken, answered.header.Get("ETag")
		return held
	}
	makeAtOnce := func(ctx context.Context, round int, first, second call, hasWaiter bool) {
		GinkgoHelper()
		held := acquire(ctx, round)
		waited := make(chan answer, 1)
		if hasWaiter {
			go func() {
				defer close(waited)
				defer GinkgoRecover()
				waited <- bob.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60,"wait_seconds":30}`)
			}()
			Eventually(func() string { return string(alice.do(ctx, http.MethodGet, "/"+held.key+"/waiters", "").body) }).
				WithTimeout(patience).Should(ContainSubstring("bob"))
		}
		answered := make(chan int, 1)
		go func() {
			defer close(answered) // Also if it fails.
			defer GinkgoRecover()
			answered <- second.do(ctx, alice, breaker, held)
		}()
		statuses := []int{first.do(ctx, alice, breaker, held), <-answered}
		what := fmt.Sprintf("round %d: %s: %d; %s: %d", round, first.name, statuses[0], second.name, statuses[1])
		ended, hasEnder := 0, first.ends || second.ends
		for index, each := range []call{first, second} {
			if each.ends && statuses[index] == http.StatusNoContent {
				ended++
				continue
			}
			Expect(each.others).To(ContainElement(statuses[index]), what)
			if !hasEnder {
				Expect(statuses[index]).To(Equal(each.others[0]), what)
			}
		}
		switch {
		case hasEnder && ended == 0:
			// A renewal moves the version that a condition names.
			Expect(first.name).To(Equal("conditional release"), what)
			Expect(statuses[0]).To(Equal(http.StatusPreconditionFailed), what)
			Expect(second.name).To(Or(Equal("renewal"), Equal("repeated request")), what)
			Expect(statuses[1]).To(Or(Equal(http.StatusOK), Equal(http.StatusCreated)), what)
			Expect(release(ctx, alice, held)).To(Equal(http.StatusNoContent), what)
		case hasEnder:
			Expect(ended).To(Equal(1), what)
		}
		if hasWaiter {
			got := <-waited
			Expect(got.status).To(Equal(http.StatusCreated), "%s: %s", what, got.body)
		}
	}
	It("answers a request that waits for a free lock, and its repetition, with one grant", func(ctx context.Context) {
		for round := range pairRounds() {
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
	for index, first := range calls {
		for _, second := range calls[index:] {
			It(fmt.Sprintf("answers a %s and a %s", first.name, second.name), func(ctx context.Context) {
				for round := range pairRounds() {
					makeAtOnce(ctx, round, first, second, false)
				}
			})
		}
	}
	for index, first := range callsBesideAWaiter() {
		for _, second := range callsBesideAWaiter()[index:] {
			if !first.ends && !second.ends {
				continue
			}
			It(fmt.Sprintf("answers a %s and a %s while another caller waits", first.name, second.name), func(ctx context.Context) {
				for round := range pairRounds() {
					makeAtOnce(ctx, round, first, second, true)
				}
			})
		}
	}
})
