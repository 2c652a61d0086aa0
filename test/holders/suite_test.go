// Package holders_test proves on a real API server that no lock outlives the object that it is held for, and that the operator
// renews a lock for as long as its Lock stands, and no longer. The suite plays the kubelet: it drives Pods through their phases.
package holders_test

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// patience bounds what must happen, on a busy machine.
const patience = 2 * time.Minute

func TestHolders(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Holders of locks, and renewals by the operator")
}

var (
	environment *fixture.Cluster
	// admin plays the rest of Kubernetes, and may force a release. The webhook checks the Locks of admin and alice, not those
	// of the operator.
	admin           client.WithWatch
	alice, operator client.Client
	aliceKubectl    *testenv.Kubectl
	// records are what all operators have recorded.
	records = &audittest.Recorder{}
	// kinds are those that webhook and controllers are configured with. Of Secrets and Nodes a spec
	// shows why it is not enough to list them.
	kinds = holderref.NewKinds(schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "Node"})
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
	tester := environment.Identity("alice", testenv.TestersGroup)
	alice, aliceKubectl = tester.Client, tester.Kubectl
	operator = environment.Operator().Client
	environment.StartAdmission(ctx, func(manager ctrl.Manager) {
		admission := fixture.LockAdmission(manager)
		admission.HolderKinds = kinds
		admission.SetupWithManager(manager)
	})
})

// startOperator runs the controller under test until the returned function is called. Nil
// election means that it needs no election.
func startOperator(ctx context.Context, election *leadership.Election) (stop func()) {
	GinkgoHelper()
	return startOperatorWith(ctx, election, func(*holders.Reconciler) {})
}

func startOperatorWith(ctx context.Context, election *leadership.Election, change func(*holders.Reconciler)) (stop func()) {
	GinkgoHelper()
	manager, err := environment.NewManager()
	Expect(err).NotTo(HaveOccurred())
	if election == nil {
		election = leadership.Always()
	}
	return runOperator(ctx, manager, election, change)
}

func runOperator(ctx context.Context, manager ctrl.Manager, election *leadership.Election, change func(*holders.Reconciler)) (stop func()) {
	GinkgoHelper()
	Expect(manager.Add(election)).To(Succeed())
	reconciler := &holders.Reconciler{
		Client: manager.GetClient(), LiveReader: manager.GetAPIReader(), Clock: clock.RealClock{},
		Leadership: election, Events: manager.GetEventRecorder("lock-operator"), Audit: records, Kinds: kinds,
	}
	change(reconciler)
	Expect(reconciler.SetupWithManager(manager)).To(Succeed())
	end := testenv.StartManager(ctx, manager)
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			Expect(end()).To(Succeed())
		}
	}
	DeferCleanup(stop)
	return stop
}

// newNamespace makes a namespace for one spec, which leaves no lock behind: operators of
// later specs would look after its holder.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "holders-")
	DeferCleanup(func(ctx context.Context) {
		var locks v1alpha1.LockList
		Expect(admin.List(ctx, &locks, client.InNamespace(namespace))).To(Succeed())
		for i := range locks.Items {
			Expect(client.IgnoreNotFound(operator.Delete(ctx, &locks.Items[i]))).To(Succeed())
		}
	})
	return namespace
}

// manifest returns what a user writes to hold a lock for an object.
func manifest(namespace, key string, ref *v1alpha1.HolderReference, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	held := func(lock *v1alpha1.Lock) { lock.Spec.HolderRef = ref }
	return fixture.Manifest(namespace, key, append([]func(*v1alpha1.Lock){held}, changes...)...)
}

func delayed(by time.Duration) func(*v1alpha1.Lock) {
	return func(lock *v1alpha1.Lock) { lock.Spec.ReleaseDelay = &v1alpha1.Duration{Duration: by} }
}

// held creates a lock for the object.
func held(ctx context.Context, namespace, key string, ref *v1alpha1.HolderReference, changes ...func(*v1alpha1.Lock)) *v1alpha1.Lock {
	GinkgoHelper()
	lock := manifest(namespace, key, ref, changes...)
	Expect(alice.Create(ctx, lock)).To(Succeed())
	return lock
}

// exists reports whether the lock still exists as the same object.
func exists(ctx context.Context, lock *v1alpha1.Lock) func() (bool, error) {
	return func() (bool, error) {
		var current v1alpha1.Lock
		err := admin.Get(ctx, client.ObjectKeyFromObject(lock), &current)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return current.UID == lock.UID, err
	}
}

func expectReleased(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(exists(ctx, lock)).Should(BeFalse())
}

// stays is long enough for an operator that errs to act: it begins to watch the holder when
// the lock is a second old.
const stays = 2 * time.Second

func expectHeld(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Consistently(exists(ctx, lock)).WithTimeout(stays).WithPolling(100 * time.Millisecond).Should(BeTrue())
}

// recorded returns the records of the end of the lock.
func recorded(lock *v1alpha1.Lock) func() []audit.Record {
	return func() []audit.Record {
		return slices.DeleteFunc(records.All(), func(record audit.Record) bool { return record.UID != string(lock.UID) })
	}
}

// notes returns what Events say about the lock.
func notes(ctx context.Context, lock *v1alpha1.Lock) func() ([]string, error) {
	return func() ([]string, error) {
		var list eventsv1.EventList
		if err := admin.List(ctx, &list, client.InNamespace(lock.Namespace)); err != nil {
			return nil, err
		}
		var notes []string
		for i := range list.Items {
			if list.Items[i].Regarding.UID == lock.UID {
				notes = append(notes, list.Items[i].Note)
			}
		}
		return notes, nil
	}
}
