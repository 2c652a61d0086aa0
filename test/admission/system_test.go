package admission_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// expectTermination deletes a namespace and waits until it is gone.
func expectTermination(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(root.Client.Delete(ctx, namespace)).To(Succeed())
	Eventually(func(ctx context.Context) error {
		return root.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
	}).
		WithContext(ctx).WithTimeout(systemTimeout).Should(MatchError(ContainSubstring("not found")))
}

// ownedBy is a lock that names a ConfigMap as its owner.
func ownedBy(ctx context.Context, namespace, key string, changes ...func(*v1alpha1.Lock)) (*v1alpha1.Lock, *corev1.ConfigMap) {
	GinkgoHelper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "owner-"}}
	Expect(root.Client.Create(ctx, owner)).To(Succeed())
	owned := func(l *v1alpha1.Lock) { l.OwnerReferences = ownerReferences(owner) }
	return held(ctx, namespace, key, append(changes, owned)...), owner
}

func ownerReferences(owner *corev1.ConfigMap) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
}

func expectCollected(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(stored).WithContext(ctx).WithArguments(lock).WithTimeout(systemTimeout).Should(BeNil())
}

var _ = Describe("Kubernetes itself", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("terminates a namespace with live locks", func(ctx context.Context) {
		for _, key := range []string{"a", "b", "c"} {
			held(ctx, namespace, key)
		}
		expectTermination(ctx, namespace)
	})

	It("collects a live lock whose owner is gone", func(ctx context.Context) {
		lock, owner := ownedBy(ctx, namespace, "owned")
		kept := held(ctx, namespace, "kept")
		Expect(root.Client.Delete(ctx, owner)).To(Succeed())
		expectCollected(ctx, lock)
		expectUntouched(ctx, kept)
	})
})
