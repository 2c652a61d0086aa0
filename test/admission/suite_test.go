// Package admission_test proves that RBAC, webhook and schema together protect a live lock
// from other users, and hinder neither its holder nor Kubernetes itself: on an API server,
// under several identities, with the real kubectl and kube-controller-manager.
package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// systemTimeout is how long the controller manager may take for what it does in seconds.
const systemTimeout = 90 * time.Second

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission under several identities")
}

const workerName = "system:serviceaccount:payments:worker"

var (
	environment *fixture.Cluster
	// worker acquires locks; stranger has every verb on locks but force-release;
	// administrator has that, too. The operator is kept out of the webhook, and root may do
	// everything.
	worker, stranger, administrator, operator, root fixture.Identity
	admission                                       *fixture.Admission
	// beforeDelete is called by the webhook before it judges a delete.
	beforeDelete atomic.Pointer[func()]
)

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(60 * time.Second)
	environment = fixture.Start(ctx)
	worker = environment.Identity(workerName, testenv.TestersGroup, "system:serviceaccounts", "system:serviceaccounts:payments")
	stranger = environment.Identity("stranger", testenv.TestersGroup)
	administrator = environment.Identity("administrator", testenv.TestersGroup, "lock-administrators")
	operator = environment.Operator()
	root = environment.Admin
	environment.AllowGroup(ctx, "lock-administrators", []string{v1alpha1.GroupVersion.Group}, []string{"locks"}, []string{"force-release"})

	controllers, err := environment.StartControllerManager("garbage-collector-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllers.Stop)
	admission = environment.StartAdmission(ctx, func(manager ctrl.Manager) { register(ctx, hookedManager{manager}) })
})

// register adds the webhook of Locks, which records forced releases as Events.
func register(ctx context.Context, manager ctrl.Manager) {
	GinkgoHelper()
	_, err := manager.GetCache().GetInformer(ctx, &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	Expect(err).NotTo(HaveOccurred())
	locks := fixture.LockAdmission(manager)
	locks.Audit = webhook.NewAudit(auditlog.WithEvents(manager.GetEventRecorder("lock-operator"), nil), clock.RealClock{})
	locks.SetupWithManager(manager)
}

// hookedManager calls beforeDelete.
type hookedManager struct{ ctrl.Manager }

// GetWebhookServer implements [ctrl.Manager].
func (m hookedManager) GetWebhookServer() ctrlwebhook.Server {
	return hookedServer{m.Manager.GetWebhookServer()}
}

type hookedServer struct{ ctrlwebhook.Server }

func (s hookedServer) Register(path string, handler http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if before := beforeDelete.Load(); before != nil && bytes.Contains(body, []byte(`"operation":"DELETE"`)) {
			(*before)()
		}
		handler.ServeHTTP(w, r)
	}))
}

// newNamespace is of the spec's own.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return environment.Namespace(ctx, "admission-")
}

// yaml returns the manifest of a lock as text, with more lines of spec.
func yaml(namespace, key string, spec ...string) string {
	text := fmt.Sprintf("apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  key: %q\n",
		v1alpha1.FullKeyOf(key).ObjectName(), namespace, key)
	for _, line := range spec {
		text += "  " + line + "\n"
	}
	return text
}

// held creates a lock of the worker.
func held(ctx context.Context, namespace, key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	GinkgoHelper()
	lock := fixture.Manifest(namespace, key, changes...)
	Expect(worker.Client.Create(ctx, lock)).To(Succeed())
	return lock
}

// expired creates a lock of the worker and waits for its expiry.
func expired(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	lock := held(ctx, namespace, key, fixture.TTL(time.Millisecond))
	Eventually(func() bool { return rules.Expired(lock, time.Now()) }).WithPolling(5 * time.Millisecond).Should(BeTrue())
	return lock
}

// stored returns what the API server has, or nil.
func stored(ctx context.Context, lock *v1alpha1.Lock) *v1alpha1.Lock {
	GinkgoHelper()
	current := &v1alpha1.Lock{}
	err := root.Client.Get(ctx, client.ObjectKeyFromObject(lock), current)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return current
}

// expectUntouched fails if anything about the lock has changed.
func expectUntouched(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	current := stored(ctx, lock)
	Expect(current).NotTo(BeNil(), "the lock is gone")
	Expect(current.ResourceVersion).To(Equal(lock.ResourceVersion), "the lock was written")
}

func expectGone(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Expect(stored(ctx, lock)).To(BeNil(), "the lock is still there")
}

// run runs kubectl in the namespace.
func run(ctx context.Context, as fixture.Identity, namespace, stdin string, arguments ...string) (string, error) {
	return as.Kubectl.Run(ctx, stdin, append([]string{"-n", namespace}, arguments...)...)
}
