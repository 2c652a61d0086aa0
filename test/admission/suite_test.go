// Package admission_test tries what people and Kubernetes itself do with Locks, under
// several identities, on a real API server with the webhook and the real
// kube-controller-manager.
package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// systemTimeout is how long the controller manager may take for what it does in seconds.
const systemTimeout = 90 * time.Second

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission under several identities")
}

// identity is somebody who asks the API server.
type identity struct {
	name    string
	config  *rest.Config
	client  client.Client
	kubectl *testenv.Kubectl
}

const workerName = "system:serviceaccount:payments:worker"

var (
	environment *testenv.Environment
	// worker acquires locks; stranger has every verb on locks but force-release;
	// administrator has that, too. The operator is kept out of the webhook, and root may do
	// everything.
	worker, stranger, administrator, operator, root identity
	// stopWebhook takes the webhook away and leaves its configuration.
	stopWebhook func() error
	// beforeDelete is called by the webhook before it judges a delete.
	beforeDelete atomic.Pointer[func()]
)

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(20 * time.Second)
	var err error
	environment, err = testenv.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return environment.Stop() })

	worker = newIdentity(workerName, testenv.TestersGroup, "system:serviceaccounts", "system:serviceaccounts:payments")
	stranger = newIdentity("stranger", testenv.TestersGroup)
	administrator = newIdentity("administrator", testenv.TestersGroup, "lock-administrators")
	operator = newIdentity(testenv.OperatorUser, "system:serviceaccounts", "system:serviceaccounts:forrst-system")
	root = newIdentity("root", "system:masters")
	allowForce(ctx, "lock-administrators")

	controllers, err := environment.StartControllerManager("garbage-collector-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllers.Stop)
	startWebhook(ctx)
	DeferCleanup(func() error { return stopWebhook() })
})

func newIdentity(name string, groups ...string) identity {
	GinkgoHelper()
	config, kubectl, err := environment.User(name, groups...)
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	made, err := client.New(config, client.Options{Scheme: environment.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return identity{name: name, config: config, client: made, kubectl: kubectl}
}

func allowForce(ctx context.Context, group string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: group}
	Expect(root.client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"locks"}, Verbs: []string{"force-release"}},
	}})).To(Succeed())
	Expect(root.client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: group},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	})).To(Succeed())
}

// startWebhook serves admission with the rights of the operator.
func startWebhook(ctx context.Context) {
	GinkgoHelper()
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: certDir})
	manager, err := environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = hookedServer{server} })
	Expect(err).NotTo(HaveOccurred())
	informer, err := manager.GetCache().GetInformer(ctx, &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	Expect(err).NotTo(HaveOccurred())
	records, err := webhook.NewAudit(auditlog.WithEvents(manager.GetEventRecorder("lock-operator"), nil), informer, clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	authorizer, err := auth.NewAuthorizer(manager.GetConfig(), manager.GetHTTPClient())
	Expect(err).NotTo(HaveOccurred())
	(&webhook.LockAdmission{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Limits:     rules.DefaultLimits(),
		Clock:      clock.RealClock{},
		Authorizer: authorizer,
		Audit:      records,
	}).SetupWithManager(manager)
	stopWebhook = testenv.StartManager(ctx, manager)
	Eventually(func() error {
		if !manager.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cache has not caught up")
		}
		return server.StartedChecker()(&http.Request{})
	}).WithTimeout(30 * time.Second).Should(Succeed())
}

// hookedServer calls beforeDelete.
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
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}
	Expect(root.client.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// manifest is what somebody writes by hand.
func manifest(namespace, key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Owner: "secret-token", TTL: &metav1.Duration{Duration: time.Hour}},
	}
	for _, change := range changes {
		change(lock)
	}
	return lock
}

func ttl(d time.Duration) func(*v1alpha1.Lock) {
	return func(l *v1alpha1.Lock) { l.Spec.TTL = &metav1.Duration{Duration: d} }
}

// yaml is the manifest of a lock in a text, with more lines of spec.
func yaml(namespace, key string, spec ...string) string {
	text := fmt.Sprintf("apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  key: %q\n",
		v1alpha1.FullKeyOf(key).ObjectName(), namespace, key)
	for _, line := range spec {
		text += "  " + line + "\n"
	}
	return text
}

// held is a lock of the worker.
func held(ctx context.Context, namespace, key string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	GinkgoHelper()
	lock := manifest(namespace, key, changes...)
	Expect(worker.client.Create(ctx, lock)).To(Succeed())
	return lock
}

// expired is a lock of the worker that has ended by itself.
func expired(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	lock := held(ctx, namespace, key, ttl(time.Millisecond))
	Eventually(func() bool { return rules.Expired(lock, time.Now()) }).WithPolling(5 * time.Millisecond).Should(BeTrue())
	return lock
}

// stored returns what the API server has, or nil.
func stored(ctx context.Context, lock *v1alpha1.Lock) *v1alpha1.Lock {
	GinkgoHelper()
	current := &v1alpha1.Lock{}
	err := root.client.Get(ctx, client.ObjectKeyFromObject(lock), current)
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
	Expect(stored(ctx, lock)).To(BeNil())
}

// run runs kubectl in the namespace.
func (i identity) run(ctx context.Context, namespace, stdin string, arguments ...string) (string, error) {
	return i.kubectl.Run(ctx, stdin, append([]string{"-n", namespace}, arguments...)...)
}
