package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

var (
	locks      = metav1.GroupVersionResource{Group: "forrst.dev", Version: "v1alpha1", Resource: "locks"}
	configMaps = metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	settings   = map[string]any{"metadata": map[string]any{"name": "settings", "namespace": "default"}}
)

// These specs do what any program can that reaches the port of the webhook: they send it reviews that
// no API server has made.
var _ = Describe("The port of the webhook", func() {
	// forged is a review of a user whom the API server may not even know.
	forged := func(operation admissionv1.Operation, resource metav1.GroupVersionResource, name string, old, submitted any) []byte {
		GinkgoHelper()
		marshalled := func(object any) []byte {
			GinkgoHelper()
			text, err := json.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			return text
		}
		raw := func(object any) runtime.RawExtension {
			GinkgoHelper()
			if object == nil {
				return runtime.RawExtension{}
			}
			return runtime.RawExtension{Raw: marshalled(object)}
		}
		return marshalled(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
			Request: &admissionv1.AdmissionRequest{
				UID: "1", Operation: operation, Namespace: "default", Name: name, Resource: resource,
				UserInfo: authenticationv1.UserInfo{Username: "mallory"},
				Object:   raw(submitted), OldObject: raw(old),
			},
		})
	}
	// verifying is the address of the server that the API server asks.
	verifying := func(ctx context.Context) string {
		GinkgoHelper()
		var configurations admissionregistrationv1.MutatingWebhookConfigurationList
		Expect(environment.Admin.Client.List(ctx, &configurations)).To(Succeed())
		url := *configurations.Items[0].Webhooks[0].ClientConfig.URL
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
		return host
	}

	It("serves the API server, which presents its certificate, and no other client", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("port"))
		review := forged(admissionv1.Create, locks, "port", nil, manifest("port"))
		other, err := admissionclient.Write(GinkgoT().TempDir(), admissionclient.AnyWebhook)
		Expect(err).NotTo(HaveOccurred())
		for _, certificates := range [][]tls.Certificate{nil, {pair(other)}} {
			_, _, err := send(ctx, verifying(ctx), webhook.LockPath, review, certificates...)
			Expect(err).To(MatchError(Or(ContainSubstring("remote error: tls:"), ContainSubstring("connection reset by peer"), ContainSubstring("broken pipe"))))
		}
		By("telling the API server who holds the lock")
		code, text, err := send(ctx, verifying(ctx), webhook.LockPath, review, pair(environment.WebhookClient()))
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusOK))
		Expect(text).To(ContainSubstring("alice"))
		Expect(bob.Delete(ctx, lock)).To(MatchError(ContainSubstring(`is held by "alice"`)), "what users are told")
	})

	It("answers a body that is too large with a reason that users read", func(ctx context.Context) {
		large := manifest("too-large-a-body")
		large.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
		Expect(alice.Create(ctx, large)).To(MatchError(ContainSubstring("the review of the change is too large: it has more than 557056 bytes")))
	})

	Context("without the authority of its clients", func() {
		var address string
		// held guards the ConfigMap settings.
		var held *v1alpha1.Lock

		BeforeEach(func(ctx context.Context) {
			stamped, _, err := rules.AdmitCreate(manifest("forged:against", func(l *v1alpha1.Lock) {
				l.Spec.Reason = "quarterly figures"
				l.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "settings"}}
			}), rules.User{Name: "alice"}, rules.DefaultLimits(), time.Now())
			Expect(err).NotTo(HaveOccurred())
			held = created(ctx, operator, stamped)
			address = startUnverifying(ctx, server.Options{MaxRequests: 10})
			Eventually(func(g Gomega) {
				_, text, err := send(ctx, address, guard.Path, forged(admissionv1.Delete, configMaps, "settings", settings, nil))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(text).To(ContainSubstring(`"allowed":false`), "the cache does not know the lock yet")
			}).WithPolling(500 * time.Millisecond).Should(Succeed())
		})

		DescribeTable("tells a forged review nothing of a lock", func(ctx context.Context, path string, review func() []byte, hint string) {
			var code int
			var text string
			Eventually(func(g Gomega) { // The rate may be used up.
				var err error
				code, text, err = send(ctx, address, path, review())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(text).NotTo(ContainSubstring("429"))
			}).WithPolling(500 * time.Millisecond).Should(Succeed())
			Expect(code).To(Equal(http.StatusOK))
			Expect(text).To(And(ContainSubstring(`"allowed":false`), ContainSubstring(hint)))
			year := held.Spec.ExpireTime.Format("2006-01")
			for _, secret := range []string{"alice", held.Spec.Owner, year, held.Spec.Reason, "quarterly"} {
				Expect(text).NotTo(ContainSubstring(secret))
			}
		},
			Entry("a create", webhook.LockPath, func() []byte {
				return forged(admissionv1.Create, locks, held.Name, nil, manifest("forged:against"))
			}, "kubectl get lock forged--against"),
			Entry("a delete", webhook.LockPath, func() []byte {
				return forged(admissionv1.Delete, locks, held.Name, held, nil)
			}, "kubectl get lock forged--against"),
			Entry("a change of what it guards", guard.Path, func() []byte {
				return forged(admissionv1.Update, configMaps, "settings", settings, settings)
			}, "it is guarded by a lock"),
		)

		It("asks the API server for forged reviews at a rate", func(ctx context.Context) {
			limited := startUnverifying(ctx, server.Options{MaxRequests: 2, Clock: clocktesting.NewFakeClock(time.Now())})
			Eventually(func(g Gomega) {
				_, text, err := send(ctx, limited, webhook.LockPath, forged(admissionv1.Delete, locks, held.Name, held, nil))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(text).To(And(ContainSubstring(`"allowed":false`), ContainSubstring(`"code":429`), ContainSubstring(`"retryAfterSeconds":1`)))
			}).WithPolling(10 * time.Millisecond).Should(Succeed())
		})
	})
})

// startUnverifying serves the webhooks to any client at the returned address until the spec ends. It
// goes by the API server's word on rights.
func startUnverifying(ctx context.Context, options server.Options) (address string) {
	GinkgoHelper()
	options.Address, options.CertDir, options.Reviews = fixture.FreeAddress(ctx), GinkgoT().TempDir(), webhook.ReviewCosts()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(options.CertDir, "tls.crt"), certificate, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(options.CertDir, "tls.key"), key, 0o600)).To(Succeed())
	served, err := server.New(options)
	Expect(err).NotTo(HaveOccurred())
	manager, err := environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = served })
	Expect(err).NotTo(HaveOccurred())
	fixture.LockAdmission(manager).SetupWithManager(manager)
	Expect(fixture.GuardAdmission(ctx, manager).SetupWithManager(manager)).To(Succeed())
	DeferCleanup(testenv.StartManager(ctx, manager))
	Eventually(func() error { return served.StartedChecker()(nil) }).Should(Succeed())
	Expect(manager.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	return options.Address
}

func pair(files admissionclient.Files) tls.Certificate {
	GinkgoHelper()
	loaded, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	Expect(err).NotTo(HaveOccurred())
	return loaded
}

// send posts a review as curl does, on a connection of its own.
func send(ctx context.Context, address, path string, review []byte, certificates ...tls.Certificate) (code int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://%s%s", address, path), bytes.NewReader(review))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Close = true
	caller := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: certificates, MinVersion: tls.VersionTLS12,
	}}}
	response, err := caller.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
