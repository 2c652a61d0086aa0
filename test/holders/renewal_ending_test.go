package holders_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
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

var _ = Describe("A lock that the operator renews", func() {
	It("is renewed no more once it is released, deleted or at its renewalEndTime", func(ctx context.Context) {
		// A deletion in the foreground is completed by the garbage collector.
		collector, err := environment.StartControllerManager("garbage-collector-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(collector.Stop)
		startRenewing(ctx, leadership.Always(), func(*rest.Config) {})
		namespace := namespaceAllowing(ctx, "720h")
		take := func(key string) *v1alpha1.Lock {
			GinkgoHelper()
			lock := declared(namespace, key)
			Expect(alice.Create(ctx, lock)).To(Succeed())
			return lock
		}
		forced, handed, background, foreground, kept := take("forced"), take("handed"), take("background"), take("foreground"), take("kept")
		// It is renewed once: 20 s and its ttl are within this time, also 15 s late, and 40 s and its ttl are not.
		bounded := declared(namespaceAllowing(ctx, "95s"), "bounded")
		Expect(alice.Create(ctx, bounded)).To(Succeed())
		// A finalizer that was stored while the webhook was away.
		withFinalizer := kept.DeepCopy()
		withFinalizer.Finalizers = []string{"example.com/keep"}
		Expect(operator.Patch(ctx, withFinalizer, client.MergeFrom(kept))).To(Succeed())

		for _, lock := range []*v1alpha1.Lock{forced, handed, background, foreground, kept, bounded} {
			Eventually(func() time.Time { return current(ctx, lock).Spec.RenewTime.Time }).Should(BeTemporally(">", lock.Spec.RenewTime.Time), lock.Name)
		}
		lastRenewal := map[string]time.Time{}
		for _, lock := range []*v1alpha1.Lock{kept, bounded} {
			lastRenewal[lock.Name] = current(ctx, lock).Spec.RenewTime.Time
		}

		By("releasing one by force, whose holder is away")
		released := current(ctx, forced)
		released.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "its repository is gone"}
		Expect(admin.Update(ctx, released)).To(Succeed())
		Expect(admin.Delete(ctx, released)).To(Succeed())
		By("deleting the manifests of others")
		Expect(alice.Delete(ctx, background, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Expect(alice.Delete(ctx, foreground, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(alice.Delete(ctx, kept)).To(Succeed())
		By("ending the policy of one")
		changed := current(ctx, handed)
		changed.Spec.RenewalPolicy = ""
		Expect(alice.Update(ctx, changed)).To(Succeed())
		Expect(changed.Spec.RenewalEndTime).To(BeNil())

		for _, lock := range []*v1alpha1.Lock{forced, background, foreground} {
			Eventually(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(lock), &v1alpha1.Lock{}) }).
				Should(Satisfy(apierrors.IsNotFound), lock.Name)
		}
		// Another holder gets each of them for a time of its own.
		var next []*v1alpha1.Lock
		for _, lock := range []*v1alpha1.Lock{forced, background, foreground} {
			other := fixture.Manifest(namespace, lock.Spec.Key, func(lock *v1alpha1.Lock) {
				lock.Spec.Owner, lock.Spec.TTL = "another", &v1alpha1.Duration{Duration: time.Hour}
			})
			Expect(admin.Create(ctx, other)).To(Succeed())
			Expect(other.Spec.RenewalPolicy).To(BeEmpty())
			next = append(next, other)
		}
		By("waiting for the end of the others")
		for _, lock := range []*v1alpha1.Lock{kept, handed, bounded} {
			Eventually(func() error {
				var stored v1alpha1.Lock
				err := admin.Get(ctx, client.ObjectKeyFromObject(lock), &stored)
				if last, isFixed := lastRenewal[lock.Name]; err == nil && isFixed {
					Expect(stored.Spec.RenewTime.Time).To(BeTemporally("==", last), lock.Name)
				}
				return err
			}).WithTimeout(4*v1alpha1.MinOperatorRenewalTTL).WithPolling(200*time.Millisecond).Should(Satisfy(apierrors.IsNotFound), lock.Name)
		}
		Expect(time.Now()).To(BeTemporally(">=", lastRenewal[bounded.Name].Add(v1alpha1.MinOperatorRenewalTTL)))
		for _, other := range next {
			Expect(current(ctx, other).ResourceVersion).To(Equal(other.ResourceVersion))
		}
		var events eventsv1.EventList
		Expect(admin.List(ctx, &events, client.InNamespace(bounded.Namespace))).To(Succeed())
		Expect(events.Items).To(ContainElement(HaveField("Reason", lockevents.ReasonRenewalEnded)))
	})
})

// startRenewing runs the controllers that renew and reap with the rights of the operator until the spec ends.
func startRenewing(ctx context.Context, election *leadership.Election, change func(*rest.Config)) {
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
