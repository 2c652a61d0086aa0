package holders_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// The garbage collector is the real one, and there is no operator.
var _ = Describe("The garbage collector", Ordered, func() {
	var namespace string

	BeforeAll(func() {
		manager, err := environment.StartControllerManager("garbage-collector-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
	})

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("releases the lock of a Pod that is deleted while the operator is away", func(ctx context.Context) {
		pod, other := running(ctx, namespace, "worker"), running(ctx, namespace, "other")
		lock, kept := held(ctx, namespace, "report", podRef(pod)), held(ctx, namespace, "kept", podRef(other))
		remove(ctx, pod)
		expectReleased(ctx, lock)
		expectHeld(ctx, kept)
	})

	It("releases the lock of an object of any kind", func(ctx context.Context) {
		grant(ctx, namespace, "get")
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		var lock *v1alpha1.Lock
		Eventually(func() error { // The authorizer learns of the right by a watch.
			lock = manifest(namespace, "report", refTo("v1", "ConfigMap", settings))
			return alice.Create(ctx, lock)
		}).Should(Succeed())
		remove(ctx, settings)
		expectReleased(ctx, lock)
	})

	It("keeps a lock whose holderRef moved to another Pod", func(ctx context.Context) {
		pod, next := running(ctx, namespace, "worker"), running(ctx, namespace, "next")
		lock := held(ctx, namespace, "report", podRef(pod))
		lock.Spec.HolderRef = podRef(next)
		Expect(alice.Update(ctx, lock)).To(Succeed())
		remove(ctx, pod)
		expectHeld(ctx, lock)
	})
})
