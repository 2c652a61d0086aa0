package holders_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The garbage collector is the real one.
var _ = Describe("The garbage collector", func() {
	It("leaves a lock to the operator, which ends it with its holder when it is back", func(ctx context.Context) {
		manager, err := environment.StartControllerManager("garbage-collector-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
		namespace := newNamespace(ctx)
		pod, other := running(ctx, namespace, "worker"), running(ctx, namespace, "other")
		lock, kept := held(ctx, namespace, "report", podRef(pod)), held(ctx, namespace, "kept", podRef(other))
		collected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "collected", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			},
		}}
		Expect(admin.Create(ctx, collected)).To(Succeed())
		remove(ctx, pod)
		Eventually(func(ctx context.Context) bool { // It begins some seconds after its start.
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(collected), collected))
		}).WithContext(ctx).Should(BeTrue())
		expectHeld(ctx, lock)
		startOperator(ctx, nil)
		expectReleased(ctx, lock)
		expectHeld(ctx, kept)
	})
})
