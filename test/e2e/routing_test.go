package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// routedCall is a call of a function inside a lock.
const routedCall = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"e2e","call":{"function":"shop.order"},"extensions":[
	{"urn":"urn:forrst:ext:atomicLock","options":{"key":"k","ttl":{"value":2,"unit":"second"}}}]}`

var _ = Describe("A routed function", func() {
	It("runs inside its lock for as long as it takes, wherever its route leads", func(ctx context.Context) {
		arrived, finish := make(chan string), make(chan struct{})
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var request struct {
				ID string `json:"id"`
			}
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			arrived <- r.Header.Get("Forrst-Fencing-Token")
			<-finish
			fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"result":{"at":%q}}`, request.ID, r.URL.Path)
		}))
		DeferCleanup(service.Close)
		file := filepath.Join(GinkgoT().TempDir(), "routes.yaml")
		route := func(path string) {
			GinkgoHelper()
			content := fmt.Sprintf("routes:\n- functions: [\"shop.*\"]\n  url: %s/%s\n  timeout: 20s\n", service.URL, path)
			Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
		}
		route("first")
		own := startCluster("--routes", file)
		status := func() any {
			GinkgoHelper()
			return own.call(ctx, "status", map[string]any{"key": "lock:shop.order:k"}).Result
		}

		By("calling a function that takes longer than the ttl of its lock")
		answers := make(chan answer, 1)
		go func() {
			defer GinkgoRecover()
			answers <- own.post(ctx, routedCall)
		}()
		Eventually(arrived).WithTimeout(startTimeout).Should(Receive(Not(BeEmpty())))
		Consistently(status).WithTimeout(4 * time.Second).WithPolling(100 * time.Millisecond).Should(HaveKeyWithValue("locked", true))
		Expect(own.post(ctx, routedCall)).To(failWith(423, "LOCK_ACQUISITION_FAILED"))
		finish <- struct{}{}
		var got answer
		Eventually(answers).WithTimeout(startTimeout).Should(Receive(&got))
		Expect(got.Result).To(HaveKeyWithValue("at", "/first"))
		Expect(got.Extensions).NotTo(ContainElement(HaveField("URN", ContainSubstring("lock-lost"))))
		Expect(status()).To(HaveKeyWithValue("locked", false))

		By("losing the caller while the function runs")
		leaving, leave := context.WithCancel(ctx)
		left := make(chan error, 1)
		go func() {
			_, err := own.tryPost(leaving, routedCall)
			left <- err
		}()
		Eventually(arrived).WithTimeout(startTimeout).Should(Receive())
		leave()
		Eventually(left).WithTimeout(startTimeout).Should(Receive(HaveOccurred()))
		Consistently(status).WithTimeout(3 * time.Second).WithPolling(100 * time.Millisecond).Should(HaveKeyWithValue("locked", true))
		finish <- struct{}{}
		Eventually(status).WithTimeout(startTimeout).Should(HaveKeyWithValue("locked", false))

		By("changing the route")
		close(finish)
		go func() {
			for range arrived {
				continue // The service waits for the spec to receive its calls.
			}
		}()
		DeferCleanup(func() { close(arrived) })
		Expect(os.WriteFile(file, []byte("routes: 1"), 0o600)).To(Succeed())
		Consistently(func() any { return own.post(ctx, routedCall).Result }).Should(HaveKeyWithValue("at", "/first"))
		route("second")
		Eventually(func() any { return own.post(ctx, routedCall).Result }).WithTimeout(startTimeout).Should(HaveKeyWithValue("at", "/second"))

		By("ending the service")
		service.Close()
		Expect(own.post(ctx, routedCall)).To(failWith(502, "DEPENDENCY_ERROR"))
		Expect(status()).To(HaveKeyWithValue("locked", false))
	})
})
