// Package renewal_test proves on a real API server that the operator renews a lock for as long as its Lock stands,
// and no longer.
package renewal_test

import (
	"context"
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

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// patience bounds what must happen, on a busy machine.
const patience = 2 * time.Minute

func TestRenewal(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Renewals by the operator")
}

var (
	environment *fixture.Cluster
	// admin may force a release. The webhook checks the Locks of admin and alice, not those of the operator.
	admin           client.WithWatch
	alice, operator client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
	alice = environment.Identity("alice", testenv.TestersGroup).Client
	operator = environment.Operator().Client
	// A deletion in the foreground is completed by the garbage collector.
	garbageCollector, err := environment.StartControllerManager("garbage-collector-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(garbageCollector.Stop)
	environment.StartAdmission(ctx, func(manager ctrl.Manager) { fixture.LockAdmission(manager).SetupWithManager(manager) })
})

// startOperator runs the controllers under test with the rights of the operator until the spec ends.
func startOperator(ctx context.Context, election *leadership.Election, change func(*rest.Config)) {
	GinkgoHelper()
	manager, err := environment.NewManagerFor(change)
	Expect(err).NotTo(HaveOccurred())
	Expect(manager.Add(election)).To(Succeed())
	Expect((&expiry.Reconciler{
		Client: manager.GetClient(), Clock: clock.RealClock{}, Leadership: election,
	}).SetupWithManager(manager)).To(Succeed())
	Expect((&renewal.Reconciler{
		Client: manager.GetClient(), LiveReader: manager.GetAPIReader(), Clock: clock.RealClock{}, Leadership: election,
		MaxOperatorRenewal: rules.MaxExpireAhead, Events: &lockevents.Reporter{Recorder: manager.GetEventRecorder("lock-operator")},
	}).SetupWithManager(manager)).To(Succeed())
	stop := testenv.StartManager(ctx, manager)
	DeferCleanup(func() { Expect(stop()).To(Succeed()) })
}

// namespaceAllowing returns a new namespace in which the operator renews locks for so long.
func namespaceAllowing(ctx context.Context, longest string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "renewal-", Annotations: map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: longest},
	}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// declared returns what a manifest says of a lock with the shortest ttl.
func declared(namespace, key string) *v1alpha1.Lock {
	return fixture.Manifest(namespace, key, func(lock *v1alpha1.Lock) {
		lock.Spec.TTL = &v1alpha1.Duration{Duration: v1alpha1.MinOperatorRenewalTTL}
		lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
	})
}

// current returns the lock as it is stored.
func current(ctx context.Context, lock *v1alpha1.Lock) *v1alpha1.Lock {
	GinkgoHelper()
	var stored v1alpha1.Lock
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(lock), &stored)).To(Succeed())
	return &stored
}
