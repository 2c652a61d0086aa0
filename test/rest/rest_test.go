package rest_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// patience has room for a slow machine.
const patience = 45 * time.Second

// worker returns a caller with a service account of its own, which may do the verbs on the locks of the
// namespace.
func worker(ctx context.Context, name string, verbs ...string) caller {
	GinkgoHelper()
	return caller{environment.CallerToken(ctx, namespace, name, verbs...)}
}

var everything = []string{"get", "list", "watch", "create"}

var _ = Describe("A lock over HTTP", func() {
	var alice, bob caller
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
	})

	It("is acquired, refused to another editor, renewed, and released", func(ctx context.Context) {
		granted := alice.do(ctx, http.MethodPost, "/flag:feature-x", `{"ttl_seconds":60,"reason":"rollout"}`)
		Expect(granted.status).To(Equal(http.StatusCreated), "%s", granted.body)
		held := granted.lock()
		Expect(held.LockToken).To(HavePrefix("lock_"))
		Expect(granted.header.Get("Location")).To(Equal("/v1/namespaces/" + namespace + "/locks/flag:feature-x"))

		refused := bob.do(ctx, http.MethodPost, "/flag:feature-x", `{"ttl_seconds":60}`)
		Expect(refused.status).To(Equal(http.StatusLocked))
		Expect(refused.problem().Holder).To(Equal("system:serviceaccount:" + namespace + ":alice"))
		Expect(refused.problem().AcquiredAt).To(Equal(held.AcquiredAt))
		Expect(refused.problem().ExpiresAt).To(Equal(held.ExpiresAt))
		Expect(strconv.Atoi(refused.header.Get("Retry-After"))).To(And(BeNumerically(">", 0), BeNumerically("<=", 60)))

		Expect(bob.do(ctx, http.MethodDelete, "/flag:feature-x", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusForbidden))
		Expect(bob.do(ctx, http.MethodGet, "/flag:feature-x", "").status).To(Equal(http.StatusOK))

		renewed := alice.do(ctx, http.MethodPut, "/flag:feature-x", `{"ttl_seconds":120}`, "X-Lock-Token", held.LockToken, "If-Match", granted.header.Get("ETag"))
		Expect(renewed.status).To(Equal(http.StatusOK), "%s", renewed.body)
		Expect(renewed.lock().FencingToken).To(Equal(held.FencingToken))
		Expect(alice.do(ctx, http.MethodDelete, "/flag:feature-x", "", "X-Lock-Token", held.LockToken, "If-Match", granted.header.Get("ETag")).status).To(Equal(http.StatusPreconditionFailed))
		Expect(alice.do(ctx, http.MethodDelete, "/flag:feature-x", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
		Expect(alice.do(ctx, http.MethodDelete, "/flag:feature-x", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusGone))
		Expect(bob.do(ctx, http.MethodPost, "/flag:feature-x", `{"ttl_seconds":60}`).status).To(Equal(http.StatusCreated))
		Expect(alice.do(ctx, http.MethodPut, "/flag:feature-x", `{"ttl_seconds":60}`, "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusGone))
	})

	It("costs two writes and no read to acquire and release", func(ctx context.Context) {
		requests.taken()
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodPost: 1, http.MethodDelete: 1}))
	})

	It("is gone for a holder whose time has passed, and whose lock another caller took over", func(ctx context.Context) {
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":1}`).lock()
		taken := bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60,"wait_seconds":30}`)
		Expect(taken.status).To(Equal(http.StatusCreated), "%s", taken.body)
		Expect(*taken.lock().FencingToken).To(BeNumerically(">", *held.FencingToken))
		late := alice.do(ctx, http.MethodPut, "/k", `{"ttl_seconds":60}`, "X-Lock-Token", held.LockToken)
		Expect(late.status).To(Equal(http.StatusGone), "%s", late.body)
		Expect(late.problem().Type).To(Equal("urn:lock-operator:problem:lock-ended"))
		Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusGone))
		Expect(bob.do(ctx, http.MethodGet, "/k", "").status).To(Equal(http.StatusOK))
	})

	It("is broken by who has the verb, with a reason", func(ctx context.Context) {
		breaker := worker(ctx, "breaker", "force-release")
		alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`)
		Expect(bob.do(ctx, http.MethodDelete, "/k?force=true&reason=stuck", "").problem().Right).To(HaveField("Verb", "force-release"))
		Expect(breaker.do(ctx, http.MethodDelete, "/k?force=true", "").status).To(Equal(http.StatusBadRequest))
		Expect(breaker.do(ctx, http.MethodDelete, "/k?force=true&reason=stuck", "").status).To(Equal(http.StatusNoContent))
		Expect(breaker.do(ctx, http.MethodDelete, "/k?force=true&reason=stuck", "").status).To(Equal(http.StatusNotFound))
	})

	It("is not broken if another grant than the one that was seen holds it", func(ctx context.Context) {
		breaker := worker(ctx, "breaker", "force-release")
		seen := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", seen.LockToken).status).To(Equal(http.StatusNoContent))
		next := bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		late := breaker.do(ctx, http.MethodDelete, fmt.Sprintf("/k?force=true&reason=stuck&fencing_token=%d", *seen.FencingToken), "")
		Expect(late.status).To(Equal(http.StatusPreconditionFailed), "%s", late.body)
		Expect(late.problem().Type).To(Equal("urn:lock-operator:problem:version-mismatch"))
		renewed := bob.do(ctx, http.MethodPut, "/k", `{"ttl_seconds":60}`, "X-Lock-Token", next.LockToken)
		Expect(renewed.status).To(Equal(http.StatusOK), "%s", renewed.body)
		Expect(breaker.do(ctx, http.MethodDelete, fmt.Sprintf("/k?force=true&reason=stuck&fencing_token=%d", *next.FencingToken), "").status).To(Equal(http.StatusNoContent))
	})

	It("does not show in the object what would release it", func(ctx context.Context) {
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		var stored v1alpha1.Lock
		Expect(environment.Admin.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "k"}, &stored)).To(Succeed())
		Expect(stored.Spec.Owner).To(HavePrefix("sha256:"))
		for part := range strings.SplitSeq(held.LockToken, "_") {
			if len(part) > 20 {
				Expect(fmt.Sprint(stored)).NotTo(ContainSubstring(part))
			}
		}
		Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", stored.Spec.Owner).status).To(Equal(http.StatusForbidden))
	})

	It("is found again by its Idempotency-Key", func(ctx context.Context) {
		first := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`, "Idempotency-Key", "deploy-of-2026-11-22").lock()
		again := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60,"wait_seconds":30}`, "Idempotency-Key", "deploy-of-2026-11-22")
		Expect(again.status).To(Equal(http.StatusCreated))
		Expect(again.lock().LockToken).To(Equal(first.LockToken))
		Expect(bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`, "Idempotency-Key", "deploy-of-2026-11-22").status).To(Equal(http.StatusLocked))
	})

	// No admission runs here, so the write does not record the number of the grant. A request that comes before the watch has shown
	// the write is told 503, since the lock might be held anew under the same token, and is repeated.
	It("stays its holder's when a client writes its metadata past admission", func(ctx context.Context) {
		annotate := func() {
			GinkgoHelper()
			var stored v1alpha1.Lock
			Expect(environment.Admin.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "k"}, &stored)).To(Succeed())
			stored.Annotations = map[string]string{"written": stored.ResourceVersion}
			Expect(environment.Admin.Client.Update(ctx, &stored)).To(Succeed())
		}
		status := func(method, body, token string) (answered int) {
			GinkgoHelper()
			Eventually(func() int {
				answered = alice.do(ctx, method, "/k", body, "X-Lock-Token", token).status
				return answered
			}).WithTimeout(patience).ShouldNot(Equal(http.StatusServiceUnavailable))
			return answered
		}
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		annotate()
		Expect(status(http.MethodPut, `{"ttl_seconds":60}`, held.LockToken)).To(Equal(http.StatusOK))
		annotate()
		Expect(status(http.MethodDelete, "", held.LockToken)).To(Equal(http.StatusNoContent))

		repeatable := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`, "Idempotency-Key", "deploy-of-2026-11-23").lock()
		annotate()
		Expect(status(http.MethodPut, `{"ttl_seconds":60}`, repeatable.LockToken)).To(Equal(http.StatusGone))
	})

	It("needs rights, and tells which one is missing", func(ctx context.Context) {
		stranger := worker(ctx, "stranger", "get")
		Expect(stranger.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).problem().Right).To(HaveField("Verb", "create"))
		Expect(stranger.do(ctx, http.MethodGet, "", "").problem().Right).To(HaveField("Verb", "list"))
		Expect(stranger.do(ctx, http.MethodGet, "?watch=true", "").problem().Right).To(HaveField("Verb", "watch"))
		Expect(stranger.do(ctx, http.MethodGet, "/k", "").status).To(Equal(http.StatusNotFound))
		Expect(caller{"no-token"}.do(ctx, http.MethodGet, "/k", "").status).To(Equal(http.StatusUnauthorized))
	})
})

var _ = Describe("Many locks", func() {
	It("are listed in pages, each of which costs one list of its size", func(ctx context.Context) {
		alice := worker(ctx, "alice", everything...)
		const many = 600
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				defer GinkgoRecover()
				for i := caller; i < many; i += 8 {
					Expect(alice.do(ctx, http.MethodPost, fmt.Sprintf("/a%%2F%04d", i), `{"ttl_seconds":3600}`).status).To(Equal(http.StatusCreated))
				}
			})
		}
		callers.Wait()
		requests.taken()
		began := time.Now()
		page := alice.do(ctx, http.MethodGet, "?limit=100", "")
		AddReportEntry(fmt.Sprintf("a page of 100 of %d locks took %v", many, time.Since(began)))
		Expect(page.status).To(Equal(http.StatusOK), "%s", page.body)
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodGet: 1}))
		Expect(strings.Count(string(page.body), `"key"`)).To(Equal(100))
	})
})

var _ = Describe("A list that is continued", func() {
	It("is refused if no page was continued so", func(ctx context.Context) {
		alice := worker(ctx, "alice", everything...)
		for _, key := range []string{"/a", "/b", "/c"} {
			Expect(alice.do(ctx, http.MethodPost, key, `{"ttl_seconds":3600}`).status).To(Equal(http.StatusCreated))
		}
		continueForged(ctx, alice)
	})
})

// continueForged continues lists as no page told to, and returns the longest time that a refusal took. For a version that is
// yet to come the API server would wait, and answer something else.
func continueForged(ctx context.Context, alice caller) (longest time.Duration) {
	GinkgoHelper()
	var others []string
	for _, forged := range []string{
		`{"v":"meta.k8s.io/v1","rv":9999999999,"start":"x\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":9999999999,"start":"x"}`,
		`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"x\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":0,"start":"x\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/x"}`,
		`{"v":"meta.k8s.io/v2","rv":1,"start":"x"}`,
		`{"rv":"x"}`,
		"x",
	} {
		chunk := base64.RawURLEncoding.EncodeToString([]byte(forged))
		text := base64.RawURLEncoding.EncodeToString([]byte(`{"chunk":"` + chunk + `"}`))
		began := time.Now()
		got := alice.do(ctx, http.MethodGet, "?continue="+text, "")
		longest = max(longest, time.Since(began))
		if got.status != http.StatusBadRequest && got.status != http.StatusGone {
			others = append(others, fmt.Sprintf("%s: %d: %s", forged, got.status, got.body))
		}
	}
	Expect(others).To(BeEmpty())
	return longest
}

// events sends the names of the events of a stream.
func events(ctx context.Context, watcher caller, path string) <-chan string {
	GinkgoHelper()
	response, err := http.DefaultClient.Do(watcher.request(ctx, http.MethodGet, "/locks"+path, "", "Accept", "text/event-stream")) //nolint:bodyclose // It is closed below.
	Expect(err).NotTo(HaveOccurred())
	Expect(response.StatusCode).To(Equal(http.StatusOK))
	names := make(chan string, 100)
	go func() {
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			if name, ok := strings.CutPrefix(scanner.Text(), "event: "); ok {
				names <- name
			}
		}
	}()
	return names
}

var _ = Describe("A stream of events", func() {
	It("shows every way in which a lock changes", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		alice, bob := worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		ofLock, ofNamespace := events(ctx, bob, "/k?watch=true"), events(ctx, bob, "?watch=true")
		expect := func(name string, since time.Time) {
			GinkgoHelper()
			for _, stream := range []<-chan string{ofLock, ofNamespace} {
				Eventually(stream).WithTimeout(patience).Should(Receive(Equal(name)))
			}
			AddReportEntry(fmt.Sprintf("%s after %v", name, time.Since(since)))
		}
		expect("sync", time.Now())
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		expect("acquired", time.Now())
		alice.do(ctx, http.MethodPut, "/k", `{"ttl_seconds":60}`, "X-Lock-Token", held.LockToken)
		expect("renewed", time.Now())
		waits := make(chan answer, 1)
		go func() {
			defer GinkgoRecover()
			waits <- bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":1,"wait_seconds":30}`)
		}()
		Eventually(func() string { return string(alice.do(ctx, http.MethodGet, "/k/waiters", "").body) }).WithTimeout(patience).
			Should(ContainSubstring(namespace + ":bob"))
		Expect(waits).NotTo(Receive())
		alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken)
		expect("handed-off", time.Now())
		granted := <-waits
		Expect(granted.status).To(Equal(http.StatusCreated))
		expires, err := time.Parse(time.RFC3339, granted.lock().ExpiresAt)
		Expect(err).NotTo(HaveOccurred())
		expect("expired", expires)
	})
})
