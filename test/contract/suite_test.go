// Package contract_test runs the contract on the backends that need an API server. That
// in memory runs it in its own package.
package contract_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// shortTTL has room for some requests, each of which asks the webhook.
const shortTTL = 700 * time.Millisecond

func TestContract(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Backends on an API server")
}

var (
	environment *testenv.Environment
	admin       client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	environment, err = testenv.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return environment.Stop() })
	admin, err = client.New(environment.Config, client.Options{Scheme: environment.Scheme})
	Expect(err).NotTo(HaveOccurred())
	startAdmission(ctx)
	startDirect(ctx)
	startServed(ctx)
})

func startAdmission(ctx context.Context) {
	GinkgoHelper()
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: certDir})
	manager, err := environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = server })
	Expect(err).NotTo(HaveOccurred())
	(&webhook.LockAdmission{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Limits:     rules.DefaultLimits(),
		Clock:      clock.RealClock{},
	}).SetupWithManager(manager)
	DeferCleanup(testenv.StartManager(ctx, manager))
	Eventually(func() error {
		if !manager.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cache has not caught up")
		}
		return server.StartedChecker()(&http.Request{})
	}).WithTimeout(30 * time.Second).Should(Succeed())
}

// newNamespace returns the name of a namespace of its own for the spec.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "contract-"}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// label writes to the metadata of a lock as somebody who does not hold it.
func label(namespace string) func(ctx context.Context, key v1alpha1.FullKey) error {
	return func(ctx context.Context, key v1alpha1.FullKey) error {
		var held v1alpha1.Lock
		if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: key.ObjectName()}, &held); err != nil {
			return err
		}
		metav1.SetMetaDataLabel(&held.ObjectMeta, "edited-at", held.ResourceVersion)
		return admin.Update(ctx, &held)
	}
}

// identity returns the configuration of a client that acts as the user.
func identity(user string, groups ...string) *rest.Config {
	GinkgoHelper()
	config, _, err := environment.User(user, groups...)
	Expect(err).NotTo(HaveOccurred())
	return config
}
