package webhook_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// patience bounds what must happen, on a busy machine.
const patience = 30 * time.Second

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Admission of Locks")
}

var (
	environment *fixture.Cluster
	// alice and bob may do everything with Locks that RBAC allows; the webhook does
	// not ask the operator.
	alice, bob, operator client.Client
	aliceKubectl         *testenv.Kubectl
	bobKubectl           *testenv.Kubectl
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	alice, aliceKubectl = user("alice", testenv.TestersGroup)
	bob, bobKubectl = user("bob", testenv.TestersGroup)
	operator, _ = user(testenv.OperatorUser)
	environment.StartAdmission(ctx, func(manager ctrl.Manager) { register(ctx, manager) })
	awaitDeletionAudit(ctx)
})

func user(name string, groups ...string) (client.Client, *testenv.Kubectl) {
	GinkgoHelper()
	identity := environment.Identity(name, groups...)
	return identity.Client, identity.Kubectl
}

// register adds the webhook of Locks and the audit of deletions to the manager.
func register(ctx context.Context, manager ctrl.Manager) {
	GinkgoHelper()
	// Without an informer from the start, the first admission would wait for one.
	_, err := manager.GetCache().GetInformer(ctx, &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	Expect(err).NotTo(HaveOccurred())
	audit := webhook.NewAudit(records, clock.RealClock{})
	audit.SetupDeletionAudit(manager)
	locks := fixture.LockAdmission(manager)
	locks.Audit, locks.Authorizer = audit, authorizerfactory.NewPrivilegedGroups("system:masters")
	locks.SetupWithManager(manager)
}

// manifest is a Lock as a user writes it.
func manifest(key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	return fixture.Manifest("default", key, changes...)
}

var ttl = fixture.TTL

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
	lock := created(ctx, alice, manifest(key, fixture.TTL(200*time.Millisecond)))
	Eventually(func() bool { return rules.Expired(lock, time.Now()) }).WithPolling(20 * time.Millisecond).Should(BeTrue())
	return lock
}
