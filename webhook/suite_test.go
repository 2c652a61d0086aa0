package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission of Locks")
}

var (
	environment *testenv.Environment
	// alice and bob may do everything with Locks that RBAC allows; the webhook does
	// not ask the operator.
	alice, bob, operator client.Client
	aliceKubectl         *testenv.Kubectl
	bobKubectl           *testenv.Kubectl
	// stopWebhook takes the webhook server away and leaves its configuration.
	stopWebhook func() error
)

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	environment, err = testenv.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return environment.Stop() })

	alice, aliceKubectl = user("alice", testenv.TestersGroup)
	bob, bobKubectl = user("bob", testenv.TestersGroup)
	operator, _ = user(testenv.OperatorUser)

	startWebhook(ctx)
	DeferCleanup(func() error { return stopWebhook() })
})

func user(name string, groups ...string) (client.Client, *testenv.Kubectl) {
	GinkgoHelper()
	config, kubectl, err := environment.User(name, groups...)
	Expect(err).NotTo(HaveOccurred())
	user, err := client.New(config, client.Options{Scheme: environment.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return user, kubectl
}

func startWebhook(ctx context.Context) {
	GinkgoHelper()
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: certDir})
	manager, err := environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = server })
	Expect(err).NotTo(HaveOccurred())
	informer, err := manager.GetCache().GetInformer(ctx, &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	Expect(err).NotTo(HaveOccurred())
	audit, err := webhook.NewAudit(records, informer, clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	_, err = webhook.NewAudit(foreignRecords, informer, clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	audit.SetupDeletionAudit(manager)
	(&webhook.LockAdmission{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Limits:     rules.DefaultLimits(),
		Clock:      clock.RealClock{},
		Audit:      audit,
		Authorizer: authorizerfactory.NewPrivilegedGroups("system:masters"),
	}).SetupWithManager(manager)
	stopWebhook = testenv.StartManager(ctx, manager)
	Eventually(func() error {
		if !manager.GetCache().WaitForCacheSync(ctx) {
			return errors.New("cache")
		}
		return server.StartedChecker()(&http.Request{})
	}).WithTimeout(30 * time.Second).Should(Succeed())
	awaitDeletionAudit(ctx)
}

// manifest is what a user writes.
func manifest(key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Owner: "token-a", TTL: &metav1.Duration{Duration: time.Hour}},
	}
	for _, change := range changes {
		change(lock)
	}
	return lock
}

func ttl(d time.Duration) func(*v1alpha1.Lock) {
	return func(l *v1alpha1.Lock) { l.Spec.TTL = &metav1.Duration{Duration: d} }
}

// created creates the lock and deletes it after the spec.
func created(ctx context.Context, as client.Client, lock *v1alpha1.Lock) *v1alpha1.Lock {
	GinkgoHelper()
	Expect(as.Create(ctx, lock)).To(Succeed())
	DeferCleanup(func(ctx context.Context) error { return client.IgnoreNotFound(operator.Delete(ctx, lock)) })
	return lock
}

// expired creates a lock, waits until it has expired, and until the webhook's cache
// must know it.
func expired(ctx context.Context, key string) *v1alpha1.Lock {
	GinkgoHelper()
	lock := created(ctx, alice, manifest(key, ttl(200*time.Millisecond)))
	Eventually(func() bool { return rules.Expired(lock, time.Now()) }).WithPolling(20 * time.Millisecond).Should(BeTrue())
	return lock
}
