// Package guards_test proves that only the holder of a lock writes what the lock guards, that
// Kubernetes itself goes on, and that the fence refuses older tokens: on an API server with the
// configuration of config/guards, under several identities, with the real kubectl and
// kube-controller-manager.
package guards_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// timeout is for what happens in milliseconds on a quiet machine. An Eventually with a context has none
// by itself.
const timeout = time.Minute

// systemTimeout is how long the controller manager may take for what it does in seconds.
const systemTimeout = 90 * time.Second

func TestGuards(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Guarded objects")
}

// writers is a group that may write everything in this suite but locks.
const writers = "writers"

var (
	environment *fixture.Cluster
	// deployer and stranger have the same rights, to objects and to locks; breaker may force a
	// release besides; bystander has no right to objects. The operator is kept out of the webhook, and
	// root may do everything.
	deployer, stranger, breaker, bystander, operator, root fixture.Identity
	admission                                              *fixture.Admission
	records                                                audittest.Recorder
	// blind makes the cache of the guard lack all locks.
	blind atomic.Bool
)

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(timeout)
	environment = fixture.Start(ctx)
	root, operator = environment.Admin, environment.Operator()
	environment.AllowGroup(ctx, writers, []string{"", "apps", "autoscaling", "batch", "networking.k8s.io"}, []string{"*"}, []string{"*"})
	environment.AllowGroup(ctx, "breakers", []string{v1alpha1.GroupVersion.Group}, []string{"locks"}, []string{"force-release"})
	deployer = environment.Identity("system:serviceaccount:ci:deployer", writers, testenv.TestersGroup)
	stranger = environment.Identity("stranger", writers, testenv.TestersGroup)
	breaker = environment.Identity("breaker", writers, testenv.TestersGroup, "breakers")
	bystander = environment.Identity("bystander", testenv.TestersGroup)

	controllers, err := environment.StartControllerManager(
		"garbage-collector-controller", "namespace-controller", "deployment-controller", "replicaset-controller", "cronjob-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllers.Stop)
	admission = environment.StartAdmission(ctx, func(manager ctrl.Manager) { register(ctx, manager) })
	awaitFence(ctx)
})

// awaitFence returns when the API server knows the policy of the fence, which may be some time after it was created.
func awaitFence(ctx context.Context) {
	GinkgoHelper()
	object := configMap(newNamespace(ctx, v1alpha1.GuardsEnabled), "fenced")
	object.Annotations = fence("deploy:web", "100")
	Expect(root.Client.Create(ctx, object)).To(Succeed())
	change("blue", fence("deploy:web", "99"))(object)
	Eventually(func(ctx context.Context) error {
		return stranger.Client.Update(ctx, object.DeepCopy(), client.DryRunAll)
	}).
		WithContext(ctx).WithTimeout(timeout).Should(MatchError(ContainSubstring("a token that is lower")))
}

// register adds the webhooks of Locks and of guarded objects.
func register(ctx context.Context, manager ctrl.Manager) {
	GinkgoHelper()
	_, err := manager.GetCache().GetInformer(ctx, &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	Expect(err).NotTo(HaveOccurred())
	locks := fixture.LockAdmission(manager)
	locks.Audit, locks.IsGuarding = webhook.NewAudit(&records, clock.RealClock{}), true
	locks.SetupWithManager(manager)
	objects := fixture.GuardAdmission(ctx, manager)
	objects.Locks, objects.Audit = lateCache{objects.Locks}, &records
	Expect(objects.SetupWithManager(manager)).To(Succeed())
}

// lateCache lacks all locks while it is blind.
type lateCache struct{ client.Reader }

func (c lateCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if blind.Load() {
		return nil
	}
	return c.Reader.List(ctx, list, options...)
}

// newNamespace has opted in, unless told otherwise, and has the objects of [web] and [api].
func newNamespace(ctx context.Context, label string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "guards-", Labels: map[string]string{v1alpha1.GuardsLabel: label}}}
	Expect(root.Client.Create(ctx, namespace)).To(Succeed())
	for _, app := range []string{"web", "api"} {
		Expect(root.Client.Create(ctx, configMap(namespace.Name, app))).To(Succeed())
		Expect(root.Client.Create(ctx, deployment(namespace.Name, app))).To(Succeed())
	}
	return namespace.Name
}

func configMap(namespace, app string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Data:       map[string]string{"color": "red"},
	}
}

func deployment(namespace, app string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		},
	}
}

func statefulSet(namespace, app string) *appsv1.StatefulSet {
	template := deployment(namespace, app)
	return &appsv1.StatefulSet{
		ObjectMeta: template.ObjectMeta,
		Spec:       appsv1.StatefulSetSpec{Replicas: template.Spec.Replicas, Selector: template.Spec.Selector, Template: template.Spec.Template},
	}
}

// What the lock of [held] guards.
var (
	webDeployment = v1alpha1.Guard{Group: "apps", Resource: "deployments", Name: "web"}
	webMaps       = v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
)

func guards(list ...v1alpha1.Guard) func(*v1alpha1.Lock) {
	return func(lock *v1alpha1.Lock) { lock.Spec.Guards = list }
}

// held acquires the lock deploy:web with these guards, and waits until the guard's cache must know it.
func held(ctx context.Context, who fixture.Identity, namespace string, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	GinkgoHelper()
	lock := fixture.Manifest(namespace, "deploy:web", guards(webDeployment, webMaps))
	lock.Spec.Reason = "rollout of web"
	for _, change := range changes {
		change(lock)
	}
	Expect(who.Client.Create(ctx, lock)).To(Succeed())
	awaitGuard(ctx, namespace)
	return lock
}

// awaitGuard returns when a stranger is refused, as soon as the cache knows the lock.
func awaitGuard(ctx context.Context, namespace string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		return patched(aConfigMap, "web", types.MergePatchType, `{"data":{"color":"dry"}}`, client.DryRunAll)(ctx, stranger, namespace)
	}).WithContext(ctx).WithTimeout(timeout).Should(beGuarded())
}

// beGuarded matches the refusal of a write of a guarded object.
func beGuarded() OmegaMatcher {
	return And(
		Satisfy(apierrors.IsForbidden),
		WithTransform(func(err error) bool { return apierrors.HasStatusCause(err, v1alpha1.CauseTypeGuarded) }, BeTrue()),
	)
}
