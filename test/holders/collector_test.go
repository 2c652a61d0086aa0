package holders_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
		remove(ctx, pod)
		expectHeld(ctx, lock)
		startOperator(ctx, nil)
		expectReleased(ctx, lock)
		expectHeld(ctx, kept)
	})
})
