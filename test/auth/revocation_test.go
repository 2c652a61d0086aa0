package auth_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

var _ = Describe("A service account that was deleted and created again", func() {
	It("does not inherit the locks of its predecessor", func(ctx context.Context) {
		namespace := createNamespace(ctx, "worker")
		accounts := admin.CoreV1().ServiceAccounts(namespace)
		former, err := accounts.Get(ctx, "worker", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		formerToken := token(ctx, namespace, "worker")
		const arguments = `{"key":"own","owner":"secret-owner"}`
		Eventually(func() string { return call(ctx, formerToken, wire.Acquire, arguments).outcome() }).WithTimeout(patience).Should(Equal("200"))
		var held v1alpha1.Lock
		name := client.ObjectKey{Namespace: namespace, Name: "own"}
		Expect(environment.Admin.Client.Get(ctx, name, &held)).To(Succeed())
		Expect(held.Spec.HolderUID).To(Equal(string(former.UID)))

		Expect(accounts.Delete(ctx, "worker", metav1.DeleteOptions{})).To(Succeed())
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		later := token(ctx, namespace, "worker")
		Eventually(func() string { return call(ctx, later, wire.Status, `{"key":"own"}`).outcome() }).WithTimeout(patience).Should(Equal("200"))
		for _, function := range []string{wire.Renew, wire.Release, release} {
			Expect(call(ctx, later, function, arguments).outcome()).To(Equal("403 LOCK_OWNERSHIP_MISMATCH"), function)
		}
		for _, function := range []string{wire.Status, status} {
			got := call(ctx, later, function, `{"key":"own"}`)
			Expect(string(got.Result)).To(And(ContainSubstring(`"locked":true`), Not(ContainSubstring("secret-owner"))))
		}

		By("inheriting those of before UIDs were kept, which only have its name")
		Expect(environment.Admin.Client.Patch(ctx, &held, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderUID":null}}`)))).To(Succeed())
		Expect(call(ctx, later, wire.Renew, arguments).outcome()).To(Equal("200"))
		Expect(call(ctx, later, release, arguments).outcome()).To(Equal("200"))
	})
})

var _ = Describe("With the caches of a real façade", func() {
	It("a right and a token that were taken away end", func(ctx context.Context) {
		const eventually = 2 * time.Minute
		revoke(ctx, eventually, eventually, eventually)
	})
})

// revoke takes a right from a caller of a façade with its real caches, gives it back, and deletes the service account. Each
// must show within the time given for it.
func revoke(ctx context.Context, rightGone, rightBack, tokenGone time.Duration) {
	GinkgoHelper()
	shared := url
	DeferCleanup(func() { url = shared })
	url = environment.StartFacade(ctx, "")
	namespace := createNamespace(ctx, "worker")
	worker := token(ctx, namespace, "worker")
	config := rest.AnonymousClientConfig(environment.Admin.Config)
	config.BearerToken = worker
	direct, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	use := func(function string) func() string {
		return func() string {
			// Another client of the API server keeps the token in its cache, for as long as it is known.
			_, _ = direct.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return call(ctx, worker, function, `{}`).outcome()
		}
	}
	took := func(what, function, outcome string, within time.Duration) {
		GinkgoHelper()
		began := time.Now()
		Eventually(use(function)).WithTimeout(within).WithPolling(100 * time.Millisecond).Should(Equal(outcome))
		AddReportEntry(what, time.Since(began).Round(100*time.Millisecond).String())
	}
	Eventually(use(wire.List)).WithTimeout(patience).Should(Equal("200"))

	bindings := admin.RbacV1().RoleBindings(namespace)
	binding, err := bindings.Get(ctx, "worker-create-get-list", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{})).To(Succeed())
	took("a right works on for", wire.List, "403 FORBIDDEN", rightGone)

	_, err = bindings.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, RoleRef: binding.RoleRef, Subjects: binding.Subjects,
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	took("a right is missed for", wire.List, "200", rightBack)

	Expect(admin.CoreV1().ServiceAccounts(namespace).Delete(ctx, "worker", metav1.DeleteOptions{})).To(Succeed())
	took("a token works on for", ping, "401 UNAUTHORIZED", tokenGone)
}
