package runbooks_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

var _ = Describe("The runbook for a lock that does not go", func() {
	It("ends it in each of the states that it names", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "locks-")
		takeAway(ctx, controllers)
		book := openRunbook("A lock does not go", "payments", namespace)

		// An object that the lock owns does not go, and a foreground deletion waits for it.
		lock := acquire(ctx, deployer, namespace, key)
		first := tokenOf(ctx, lock)
		fixture.CreateStuckDependent(ctx, root.Client, lock)
		Expect(deployer.Client.Delete(ctx, lock, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(book.run(ctx, root, "get lock")).To(And(ContainSubstring("deployer"), ContainSubstring(metav1.FinalizerDeleteDependents)))
		_, err := shell(ctx, root, "kubectl delete lock "+lockName+" --wait=false --namespace "+namespace)
		Expect(err).To(HaveOccurred(), "without a reason")
		book.run(ctx, root, "force-release-reason")
		Expect(exists(ctx, lock)).To(BeFalse())

		// A finalizer was set while the webhook was not installed.
		lock = acquire(ctx, deployer, namespace, key)
		second := tokenOf(ctx, lock)
		Expect(second).To(BeNumerically(">", first))
		addFinalizer(ctx, lock)
		Expect(deployer.Client.Delete(ctx, lock)).To(Succeed())
		book.run(ctx, deployer, "finalizers")
		Expect(exists(ctx, lock)).To(BeFalse())

		// It has expired, and the operator is away.
		lock = acquire(ctx, deployer, namespace, key, fixture.TTL(10*time.Second))
		_, err = shell(ctx, stranger, "kubectl delete lock "+lockName+" --namespace "+namespace)
		Expect(err).To(HaveOccurred(), "it is held")
		awaitExpiry(ctx, lock)
		book.run(ctx, stranger, "kubectl delete lock")

		Expect(book.run(ctx, root, "--ignore-not-found")).To(BeEmpty())
		Expect(tokenOf(ctx, acquire(ctx, deployer, namespace, key))).To(BeNumerically(">", second))
	})
})

var _ = Describe("The runbook for a guarded namespace whose webhook is away", func() {
	It("opens it for those who may, and closes it again", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "guarded-")
		_, err := root.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled)
		Expect(err).NotTo(HaveOccurred())
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}
		Expect(root.Client.Create(ctx, settings)).To(Succeed())
		acquire(ctx, deployer, namespace, "deploy:settings", func(lock *v1alpha1.Lock) {
			lock.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "settings"}}
		})
		isWritable := func(ctx context.Context) error {
			_, err := root.Kubectl.Run(ctx, "", "annotate", "configmap", "settings", "checked=now", "--overwrite", "--dry-run=server", "--namespace="+namespace)
			return err
		}
		Eventually(isWritable).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("guarded by the lock")))
		takeAway(ctx, webhook)

		book := openRunbook("A guarded namespace refuses every write", "payments", namespace)
		Expect(book.fail(ctx, root, "--dry-run=server")).To(ContainSubstring(`failed calling webhook "guard.forrst.dev"`))
		Expect(book.run(ctx, root, "get locks")).To(And(
			MatchRegexp(`lock-operator-webhook +0/0`), ContainSubstring(namespace), MatchRegexp(`deploy--settings +deployer .* configmaps`)))
		_, err = shell(ctx, onCall, "kubectl label namespace "+namespace+" "+v1alpha1.GuardsLabel+"-")
		Expect(err).To(HaveOccurred(), "without a right to it")
		book.run(ctx, root, "create clusterrole")
		DeferCleanup(shell, root, "kubectl delete clusterrole,clusterrolebinding open-"+namespace)
		// The API server learns of a binding by a watch of its own.
		isBound := func(ctx context.Context) error {
			_, err := shell(ctx, onCall, "kubectl auth can-i patch namespaces/"+namespace+" && kubectl auth can-i get namespaces/"+namespace)
			return err
		}
		Eventually(isBound).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(book.run(ctx, onCall, v1alpha1.GuardsLabel+"-")).NotTo(ContainSubstring(v1alpha1.GuardsLabel + "="))
		Eventually(isWritable).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		book.run(ctx, root, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled)
		Eventually(isWritable).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("guarded by the lock")))
		Expect(book.fail(ctx, root, "--dry-run=server")).To(And(ContainSubstring("Forbidden"), ContainSubstring(`it is guarded by the lock "deploy--settings"`)))
	})
})
