package admission_test

import (
	"context"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

// stick has the holder delete the lock in the foreground, and an object that depends on the lock
// keep it: the garbage collector waits for the finalizer of that object.
func stick(ctx context.Context, lock *v1alpha1.Lock) *v1alpha1.Lock {
	GinkgoHelper()
	fixture.CreateStuckDependent(ctx, root.Client, lock)
	_, err := run(ctx, worker, lock.Namespace, "", "delete", "lock", lock.Name, "--cascade=foreground", "--wait=false")
	Expect(err).NotTo(HaveOccurred())
	deleting := stored(ctx, lock)
	Expect(deleting).NotTo(BeNil())
	Expect(deleting.Finalizers).To(ConsistOf(metav1.FinalizerDeleteDependents))
	return deleting
}

var _ = Describe("A lock on which a stuck object depends", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	// direct runs an engine with an identity of its own, and no reaper.
	direct := func(ctx context.Context, who fixture.Identity) *engine.Engine {
		GinkgoHelper()
		made, err := engine.NewDirect(who.Config, namespace, logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		startEngine(ctx, made)
		return made
	}
	// facade runs an engine as that of the façade, and no reaper.
	facade := func(ctx context.Context, _ fixture.Identity) *engine.Engine {
		GinkgoHelper()
		httpClient, err := rest.HTTPClientFor(operator.Config)
		Expect(err).NotTo(HaveOccurred())
		objects, err := engine.NewObjectClient(operator.Config, httpClient)
		Expect(err).NotTo(HaveOccurred())
		made, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits()})
		Expect(err).NotTo(HaveOccurred())
		startEngine(ctx, made)
		return made
	}

	Context("after a delete in the foreground, once it has expired", func() {
		var over *v1alpha1.Lock
		BeforeEach(func(ctx context.Context) { over = stick(ctx, expired(ctx, namespace, "billing:report")) })

		It("is reaped", func(ctx context.Context) {
			startFacade(ctx, namespace)
			Eventually(stored).WithContext(ctx).WithArguments(over).WithTimeout(systemTimeout).Should(BeNil(), "the lock is still there")
		})

		DescribeTable("is acquired", func(ctx context.Context, start func(context.Context, fixture.Identity) *engine.Engine) {
			acquired, err := start(ctx, stranger).Acquire(ctx, namespace, requestFor("billing:report"))
			Expect(err).NotTo(HaveOccurred())
			Expect(acquired.UID).NotTo(Equal(over.UID))
			Expect(acquired.DeletionTimestamp).To(BeNil())
		},
			Entry("by the façade", facade),
			Entry("by a program with an identity of its own", direct),
		)

		It("is created anew by another user", func(ctx context.Context) {
			Eventually(func(ctx context.Context) error { // The webhook learns of the lock by a watch.
				return stranger.Client.Create(ctx, fixture.Manifest(namespace, "billing:report"))
			}).WithContext(ctx).WithTimeout(systemTimeout).Should(Succeed())
		})

		It("is deleted by another user", func(ctx context.Context) {
			_, err := run(ctx, stranger, namespace, "", "delete", "lock", over.Name, "--wait=false")
			Expect(err).NotTo(HaveOccurred())
		})
	})

	Context("after a delete in the foreground, while it is held", func() {
		var live *v1alpha1.Lock
		BeforeEach(func(ctx context.Context) { live = stick(ctx, held(ctx, namespace, "billing:report")) })

		It("is not acquired by another caller", func(ctx context.Context) {
			_, err := facade(ctx, stranger).Acquire(ctx, namespace, requestFor("billing:report"))
			Expect(err).To(MatchError(lock.ErrHeld))
			expectUntouched(ctx, live)
		})

		DescribeTable("is gone when it was force-released", func(ctx context.Context, start func(context.Context, fixture.Identity) *engine.Engine) {
			Expect(start(ctx, administrator).ForceRelease(ctx, namespace, live.Spec.FullKey(), "stuck")).To(Succeed())
			expectGone(ctx, live)
		},
			Entry("by the façade", facade),
			Entry("by a program with an identity of its own", direct),
		)

		It("is gone when its holder released it", func(ctx context.Context) {
			Expect(direct(ctx, worker).Release(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: live.Spec.Owner, Holder: workerName})).To(Succeed())
			expectGone(ctx, live)
		})
	})

	It("is gone when it was released beside its dependent", func(ctx context.Context) {
		live := held(ctx, namespace, "billing:report")
		fixture.CreateStuckDependent(ctx, root.Client, live)
		Expect(direct(ctx, worker).Release(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: live.Spec.Owner, Holder: workerName})).To(Succeed())
		expectGone(ctx, live)
	})
})
