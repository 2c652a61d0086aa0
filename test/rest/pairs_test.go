package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/pairs"
)

// grant is a lock of alice, acquired through the REST door, with its callers.
type grant struct {
	alice, breaker                   caller
	key, token, etag, idempotencyKey string
	fencingToken                     int64
}

func release(ctx context.Context, held grant, headers ...string) string {
	GinkgoHelper()
	return answered(held.alice.do(ctx, http.MethodDelete, "/"+held.key, "", append(headers, "X-Lock-Token", held.token)...).status)
}

func renew(ctx context.Context, held grant, headers ...string) string {
	GinkgoHelper()
	return answered(held.alice.do(ctx, http.MethodPut, "/"+held.key, `{"ttl_seconds":60}`, append(headers, "X-Lock-Token", held.token)...).status)
}

// repeat sends the request again that has acquired the lock.
func repeat(ctx context.Context, held grant, body string) string {
	GinkgoHelper()
	return answered(held.alice.do(ctx, http.MethodPost, "/"+held.key, body, "Idempotency-Key", held.idempotencyKey).status)
}

func force(ctx context.Context, held grant, parameters string) string {
	GinkgoHelper()
	return answered(held.breaker.do(ctx, http.MethodDelete, "/"+held.key+"?force=true&reason=stuck"+parameters, "").status)
}

// answered returns a status as an answer.
func answered(status int) string { return strconv.Itoa(status) }

const (
	ok, created, noContent    = "200", "201", "204"
	notFound, gone, isChanged = "404", "410", "412"
	isHeld                    = "423"
)

var calls = []pairs.Call[grant]{
	{
		Name: "release", Answers: pairs.Answers{Ended: noContent, Others: []string{gone}},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return release(ctx, held) }),
	},
	{
		Name: "conditional release", Answers: pairs.Answers{Ended: noContent, Missed: isChanged, Others: []string{gone}},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return release(ctx, held, "If-Match", held.etag) }),
	},
	{
		Name: "forced release", Answers: pairs.Answers{Ended: noContent, Others: []string{notFound, isChanged}, EndsNext: true},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return force(ctx, held, "") }),
	},
	{
		Name: "forced release of the grant", Answers: pairs.Answers{Ended: noContent, Others: []string{notFound, isChanged}},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string {
			return force(ctx, held, fmt.Sprintf("&fencing_token=%d", held.fencingToken))
		}),
	},
	{
		Name: "forced release through the Forrst door", Answers: pairs.Answers{Ended: noContent, Others: []string{notFound}, EndsNext: true},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string {
			_, code := held.breaker.callForrst(ctx, "urn:cline:forrst:ext:atomic-lock:fn:force-release", fmt.Sprintf(`{"key":"lock:%s","reason":"stuck"}`, held.key))
			switch code {
			case "":
				return noContent
			case "LOCK_NOT_FOUND", "LOCK_ALREADY_RELEASED":
				return notFound
			}
			return code
		}),
	},
	{
		Name: "renewal", Answers: pairs.Answers{Changed: ok, Others: []string{ok, gone}},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return renew(ctx, held) }),
	},
	{
		Name: "conditional renewal", Answers: pairs.Answers{Missed: isChanged, Changed: ok, Others: []string{ok, gone}},
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return renew(ctx, held, "If-Match", held.etag) }),
	},
	{
		Name: "repeated request", Answers: pairs.Answers{Took: created, Changed: created, Others: []string{created, gone, isHeld}}, IsAlone: true,
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string { return repeat(ctx, held, `{"ttl_seconds":60}`) }),
	},
	{
		Name: "repeated request that waits", Answers: pairs.Answers{Took: created, Changed: created, Others: []string{created, gone}}, IsAlone: true,
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string {
			return repeat(ctx, held, `{"ttl_seconds":60,"wait_seconds":30}`)
		}),
	},
	{
		Name: "request of another caller", Answers: pairs.Answers{Took: created, Others: []string{isHeld}}, IsAlone: true,
		Prepare: pairs.Direct(func(ctx context.Context, held grant) string {
			return answered(held.breaker.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60}`).status)
		}),
	},
}

// Who ends a grant is told so, and nobody else is.
var _ = Describe("Two calls at once about a grant", func() {
	var alice, bob, breaker caller
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		breaker = worker(ctx, "breaker", append(slices.Clone(everything), "force-release")...)
	})
	pairs.Declare(&pairs.Subject[grant]{
		Acquire: func(ctx context.Context, round int) grant {
			held := grant{alice: alice, breaker: breaker, key: fmt.Sprint("k", round), idempotencyKey: fmt.Sprintf("the-request-of-round-%d", round)}
			answered := alice.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60}`, "Idempotency-Key", held.idempotencyKey)
			Expect(answered.status).To(Equal(http.StatusCreated), "%s", answered.body)
			described := answered.lock()
			held.token, held.fencingToken, held.etag = described.LockToken, *described.FencingToken, answered.header.Get("ETag")
			return held
		},
		Wait: func(ctx context.Context, held grant) func(bool) {
			waited := make(chan answer, 1)
			go func() {
				defer close(waited)
				defer GinkgoRecover()
				waited <- bob.do(ctx, http.MethodPost, "/"+held.key, `{"ttl_seconds":60,"wait_seconds":30}`)
			}()
			Eventually(func() string { return string(alice.do(ctx, http.MethodGet, "/"+held.key+"/waiters", "").body) }).
				WithTimeout(patience).Should(ContainSubstring("bob"))
			return func(hasEnded bool) {
				got := <-waited
				Expect(got.status).To(Equal(http.StatusCreated), "%s", got.body)
				held := grant{alice: bob, key: held.key, token: got.lock().LockToken}
				Expect(release(ctx, held)).To(Equal(map[bool]string{false: noContent, true: gone}[hasEnded]))
			}
		},
		Release: func(ctx context.Context, held grant) { Expect(release(ctx, held)).To(Equal(noContent)) },
		Spread:  5 * time.Millisecond,
	}, calls)
})
