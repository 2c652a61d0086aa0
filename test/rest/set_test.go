package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/rest/wire"
)

// ofSet sends a request about several locks, with the query.
func (c caller) ofSet(ctx context.Context, method, query, body string, headers ...string) answer {
	GinkgoHelper()
	return send(c.request(ctx, method, "/acquisitions"+query, body, headers...))
}

func (a answer) set() wire.Set {
	GinkgoHelper()
	var held wire.Set
	Expect(json.Unmarshal(a.body, &held)).To(Succeed(), "%s", a.body)
	return held
}

var _ = Describe("Several locks over HTTP", func() {
	var alice, bob caller
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
	})

	It("cost a write for each, and a read for each but one", func(ctx context.Context) {
		requests.taken()
		created := alice.ofSet(ctx, http.MethodPost, "", `{"keys":["c","a","b"],"ttl_seconds":60}`)
		Expect(created.status).To(Equal(http.StatusCreated), "%s", created.body)
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodPost: 3, http.MethodGet: 2}))
		set := created.set()
		for _, held := range set.Locks[:2] {
			Expect(*held.FencingToken).To(BeNumerically("<", set.FencingToken))
		}
		Expect(alice.ofSet(ctx, http.MethodPut, "?key=a&key=b&key=c", `{"ttl_seconds":90}`, "X-Lock-Token", set.LockToken).status).To(Equal(http.StatusOK))
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodPut: 3}))
		Expect(alice.ofSet(ctx, http.MethodDelete, "?key=a&key=b&key=c", "", "X-Lock-Token", set.LockToken).status).To(Equal(http.StatusNoContent))
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodDelete: 3}))
	})

	It("are the same for a repeated request", func(ctx context.Context) {
		const body, again = `{"keys":["a","b"],"ttl_seconds":60,"wait_seconds":30}`, "0123456789abcdef"
		first := alice.ofSet(ctx, http.MethodPost, "", body, "Idempotency-Key", again)
		Expect(first.status).To(Equal(http.StatusCreated), "%s", first.body)
		second := alice.ofSet(ctx, http.MethodPost, "", body, "Idempotency-Key", again)
		Expect(second.status).To(Equal(http.StatusCreated), "%s", second.body)
		Expect(second.set().LockToken).To(Equal(first.set().LockToken))
	})

	It("are none for a client that leaves while it waits", func(ctx context.Context) {
		held := alice.do(ctx, http.MethodPost, "/b", `{"ttl_seconds":600}`).lock()
		leaving, leave := context.WithCancel(ctx)
		left := make(chan error, 1)
		go func() {
			response, err := http.DefaultClient.Do(bob.request(leaving, http.MethodPost, "/acquisitions", `{"keys":["a","b"],"ttl_seconds":60,"wait_seconds":50}`))
			if err == nil {
				response.Body.Close()
			}
			left <- err
		}()
		Eventually(func() []byte { return alice.do(ctx, http.MethodGet, "/b/waiters", "").body }).WithTimeout(patience).Should(ContainSubstring(":bob"))
		Expect(alice.do(ctx, http.MethodGet, "/a", "").status).To(Equal(http.StatusNotFound))
		leave()
		Expect(<-left).To(MatchError(context.Canceled))
		Eventually(func() []byte { return alice.do(ctx, http.MethodGet, "/b/waiters", "").body }).WithTimeout(patience).ShouldNot(ContainSubstring(":bob"))
		Expect(alice.do(ctx, http.MethodDelete, "/b", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
		Expect(alice.ofSet(ctx, http.MethodPost, "", `{"keys":["a","b"],"ttl_seconds":60}`).status).To(Equal(http.StatusCreated))
	})

	It("are granted to all who ask for them in any order, and never one to two", func(ctx context.Context) {
		callers, rounds := 12, 8
		if os.Getenv("CROSSING_SETS") != "" { // The night takes its time.
			callers, rounds = 50, 200
		}
		var mu sync.Mutex
		isHeld, last := map[string]bool{}, map[string]int64{}
		set := func(held wire.Set, to bool) {
			mu.Lock()
			defer mu.Unlock()
			for _, each := range held.Locks {
				if to {
					Expect(isHeld[each.Key]).To(BeFalse(), "%s has two holders", each.Key)
					Expect(held.FencingToken).To(BeNumerically(">", last[each.Key]), "an earlier holder of %s", each.Key)
					last[each.Key] = held.FencingToken
				}
				isHeld[each.Key] = to
			}
		}
		var parts sync.WaitGroup
		for number := range callers {
			asked := [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"c", "b", "a"}, {"b"}}[number%6]
			body := fmt.Sprintf(`{"keys":%s,"ttl_seconds":30,"wait_seconds":50}`, jsonOf(asked))
			parts.Go(func() {
				defer GinkgoRecover()
				for range rounds {
					var created answer
					// A wait that was long enough is none that hangs.
					for created = alice.ofSet(ctx, http.MethodPost, "", body); created.status == http.StatusLocked; created = alice.ofSet(ctx, http.MethodPost, "", body) {
					}
					Expect(created.status).To(Equal(http.StatusCreated), "%s", created.body)
					held := created.set()
					set(held, true)
					set(held, false)
					released := send(alice.request(ctx, http.MethodDelete, created.header.Get("Location")[len("/v1/namespaces/"+namespace):], "", "X-Lock-Token", held.LockToken))
					Expect(released.status).To(Equal(http.StatusNoContent), "%s", released.body)
				}
			})
		}
		parts.Wait()
		Expect(string(alice.do(ctx, http.MethodGet, "", "").body)).To(ContainSubstring(`"locks":[]`))
	}, NodeTimeout(time.Hour))
})

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
