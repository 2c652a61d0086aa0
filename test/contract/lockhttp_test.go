package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/problems"
)

// service is a replica of a service of feature flags, whose writes are slow if the body says so.
type service struct{ handler http.Handler }

const (
	flagPath     = "/v1/flags/feature-x"
	flagLockPath = flagPath + "/lock"
	flagName     = "flag--feature-x"
)

func startService(backend lock.Backend, namespace string) service {
	GinkgoHelper()
	flags, err := lockhttp.New(lockhttp.Config{
		Client: lock.NewClient(backend, namespace),
		Key:    func(r *http.Request) (string, error) { return "flag:" + r.PathValue("flag"), nil },

		MaxWait: maxBlock,
	})
	Expect(err).NotTo(HaveOccurred())
	mux := http.NewServeMux()
	mux.Handle("/v1/flags/{flag}/lock", flags.LockHandler())
	mux.Handle("/v1/flags/{flag}", flags.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("slow") {
			<-r.Context().Done()
			return
		}
		held, _ := lockhttp.FromContext(r.Context())
		fmt.Fprint(w, held.FencingToken())
	})))
	return service{mux}
}

// do returns the answer to a request with headers, name before value.
func (s service) do(ctx context.Context, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, request)
	return recorder
}

func bodyOf[T any](recorder *httptest.ResponseRecorder) T {
	GinkgoHelper()
	var body T
	Expect(json.Unmarshal(recorder.Body.Bytes(), &body)).To(Succeed(), "%s", recorder.Body)
	return body
}

var _ = Describe("A service that puts its resources behind locks", func() {
	DescribeTable("serves each request by any replica", func(ctx context.Context, start func(namespace string) (first, second service), holder string) {
		namespace := newNamespace(ctx)
		first, second := start(namespace)

		granted := first.do(ctx, http.MethodPost, flagLockPath, `{"ttl_seconds":600,"reason":"rollout"}`)
		Expect(granted.Code).To(Equal(http.StatusCreated), "%s", granted.Body)
		held := bodyOf[lockhttp.Lock](granted)
		Expect(held.Holder).To(Equal(holder))
		var stored v1alpha1.Lock
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: flagName}, &stored)).To(Succeed())
		Expect(held.LockToken).NotTo(ContainSubstring(stored.Spec.Owner))

		refused := second.do(ctx, http.MethodPost, flagLockPath, `{"ttl_seconds":600}`)
		Expect(refused.Code).To(Equal(http.StatusLocked))
		Expect(bodyOf[problems.Document](refused).Holder).To(Equal(holder))
		Expect(second.do(ctx, http.MethodPatch, flagPath, `{}`).Code).To(Equal(http.StatusLocked))
		written := second.do(ctx, http.MethodPatch, flagPath, `{}`, "X-Lock-Token", held.LockToken)
		Expect(written.Code).To(Equal(http.StatusOK))
		Expect(written.Body.String()).To(Equal(fmt.Sprint(held.FencingToken)))

		// It expires in mid-edit, and another client takes it.
		const short = `{"ttl_seconds":0.5}`
		// The answer may come when it has expired.
		Expect(second.do(ctx, http.MethodPut, flagLockPath, short, "X-Lock-Token", held.LockToken).Code).
			To(Or(Equal(http.StatusOK), Equal(http.StatusGone), Equal(http.StatusServiceUnavailable)))
		var taken *httptest.ResponseRecorder
		Eventually(func() int {
			taken = second.do(ctx, http.MethodPost, flagLockPath, `{"ttl_seconds":600}`)
			return taken.Code
		}).WithContext(ctx).WithTimeout(answer).Should(Equal(http.StatusCreated))
		next := bodyOf[lockhttp.Lock](taken)
		Expect(next.FencingToken).To(BeNumerically(">", held.FencingToken))
		for _, replica := range []service{first, second} {
			Expect(replica.do(ctx, http.MethodPatch, flagPath, `{}`, "X-Lock-Token", held.LockToken).Code).To(Equal(http.StatusGone))
			Expect(replica.do(ctx, http.MethodPut, flagLockPath, short, "X-Lock-Token", held.LockToken).Code).To(Equal(http.StatusGone))
			Expect(replica.do(ctx, http.MethodDelete, flagLockPath, "", "X-Lock-Token", held.LockToken).Code).To(Equal(http.StatusGone))
		}

		// It is released by one replica while the other one serves a write.
		slow := make(chan int, 1)
		go func() {
			slow <- first.do(ctx, http.MethodPatch, flagPath+"?slow", `{}`, "X-Lock-Token", next.LockToken).Code
		}()
		Eventually(func() string {
			return bodyOf[lockhttp.Lock](second.do(ctx, http.MethodGet, flagLockPath, "")).RenewedAt
		}).WithContext(ctx).WithTimeout(answer).ShouldNot(Equal(next.RenewedAt))
		Expect(second.do(ctx, http.MethodDelete, flagLockPath, "", "X-Lock-Token", next.LockToken).Code).To(Equal(http.StatusNoContent))
		Eventually(slow).WithContext(ctx).WithTimeout(answer).Should(Receive(Equal(http.StatusGone)))
		Expect(second.do(ctx, http.MethodGet, flagLockPath, "").Code).To(Equal(http.StatusNotFound))

		// A write without a token has a lock of its own, for as long as it takes.
		Expect(first.do(ctx, http.MethodPatch, flagPath, `{}`).Code).To(Equal(http.StatusOK))
		Expect(second.do(ctx, http.MethodGet, flagLockPath, "").Code).To(Equal(http.StatusNotFound))
	},
		Entry("on engines of its own", func(namespace string) (first, second service) {
			return startService(direct, namespace), startService(directRival, namespace)
		}, directUser),
		Entry("through façades", func(namespace string) (first, second service) {
			return startService(serve(served, namespace, allowed), namespace), startService(serve(servedRival, namespace, allowed), namespace)
		}, facadeCaller),
	)
})
