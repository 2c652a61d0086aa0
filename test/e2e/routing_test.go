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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// routedCall is a call of a function inside a lock. A busy machine has two thirds of the ttl to renew it.
const routedCall = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"e2e","call":{"function":"shop.order"},"extensions":[
	{"urn":"urn:forrst:ext:atomicLock","options":{"key":"k","ttl":{"value":15,"unit":"second"}}}]}`

// routedService is what the functions "shop.…" are routed to.
type routedService struct {
	*httptest.Server

	// file has the routes.
	file string
	// arrived has the fencing token of each call, which ends once finish has a value or is closed.
	arrived chan string
	finish  chan struct{}
}

// newRoutedService serves until the spec or container ends.
func newRoutedService() *routedService {
	GinkgoHelper()
	service := &routedService{
		arrived: make(chan string), finish: make(chan struct{}), file: filepath.Join(GinkgoT().TempDir(), "routes.yaml"),
	}
	service.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID string `json:"id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		service.arrived <- r.Header.Get("Forrst-Fencing-Token")
		<-service.finish
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"result":{"at":%q}}`, request.ID, r.URL.Path)
	}))
	DeferCleanup(service.Close)
	service.route("first")
	return service
}

// route leads to a path of the service.
func (s *routedService) route(path string) {
	GinkgoHelper()
	content := fmt.Sprintf("routes:\n- functions: [\"shop.*\"]\n  url: %s/%s\n  timeout: 90s\n", s.URL, path)
	Expect(os.WriteFile(s.file, []byte(content), 0o600)).To(Succeed())
}

// run calls the service, which then ends, through the façade of the cluster.
func (s *routedService) run(ctx context.Context, own *cluster) {
	GinkgoHelper()
	status := func() any {
		GinkgoHelper()
		return own.call(ctx, "status", map[string]any{"key": "lock:shop.order:k"}).Result
	}
	// renewedAt returns when the lock was renewed, and fails if it is not held.
	renewedAt := func() time.Time {
		GinkgoHelper()
		Expect(status()).To(HaveKeyWithValue("locked", true))
		var locks v1alpha1.LockList
		Expect(own.client().List(ctx, &locks, client.InNamespace("default"))).To(Succeed())
		for _, lock := range locks.Items {
			if lock.Spec.Function == "shop.order" {
				return lock.Spec.RenewTime.Time
			}
		}
		Fail("there is no lock of the function")
		return time.Time{}
	}
	expectRenewal := func() {
		GinkgoHelper()
		Eventually(renewedAt).WithTimeout(startTimeout).WithPolling(100 * time.Millisecond).Should(BeTemporally(">", renewedAt()))
	}

	By("calling a function, whose lock is renewed")
	answers := make(chan answer, 1)
	go func() {
		defer GinkgoRecover()
		answers <- own.post(ctx, routedCall)
	}()
	Eventually(s.arrived).WithTimeout(startTimeout).Should(Receive(Not(BeEmpty())))
	expectRenewal()
	Expect(own.post(ctx, routedCall)).To(failWith(423, "LOCK_ACQUISITION_FAILED"))
	s.finish <- struct{}{}
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
	Eventually(s.arrived).WithTimeout(startTimeout).Should(Receive())
	leave()
	Eventually(left).WithTimeout(startTimeout).Should(Receive(HaveOccurred()))
	expectRenewal()
	s.finish <- struct{}{}
	Eventually(status).WithTimeout(startTimeout).Should(HaveKeyWithValue("locked", false))

	By("changing the route")
	close(s.finish)
	go func() {
		for range s.arrived {
			continue // The service waits for the spec to receive its calls.
		}
	}()
	DeferCleanup(func() { close(s.arrived) })
	Expect(os.WriteFile(s.file, []byte("routes: 1"), 0o600)).To(Succeed())
	Consistently(func() any { return own.post(ctx, routedCall).Result }).Should(HaveKeyWithValue("at", "/first"))
	s.route("second")
	Eventually(func() any { return own.post(ctx, routedCall).Result }).WithTimeout(startTimeout).Should(HaveKeyWithValue("at", "/second"))

	By("ending the service")
	s.Close()
	Expect(own.post(ctx, routedCall)).To(failWith(502, "DEPENDENCY_ERROR"))
	Expect(status()).To(HaveKeyWithValue("locked", false))
}
