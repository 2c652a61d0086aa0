package auth_test

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/facade/forrst/wire"
)

// account creates a service account whose only right is by the rule, and returns a token of it.
func account(ctx context.Context, namespace, name string, rule rbacv1.PolicyRule) string {
	GinkgoHelper()
	_, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	rule.APIGroups = []string{"forrst.dev"}
	_, err = admin.RbacV1().Roles(namespace).Create(ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token(ctx, namespace, name)
}

// rested sends a request to the REST door and returns the status of its answer. A stream is left at its
// beginning.
func rested(ctx context.Context, token, method, path, body string, headers ...string) int {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	_ = response.Body.Close()
	return response.StatusCode
}

var _ = Describe("A Role that names locks", func() {
	const ofMinutes = `{"ttl_seconds":600}`

	It("lets its users have those locks, and no others, through both doors and the API server", func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "auth-")
		clerk := account(ctx, namespace, "clerk", rbacv1.PolicyRule{
			Resources: []string{"locks"}, ResourceNames: []string{"billing--report"},
			Verbs: []string{"create", "get", "watch", "patch", "force-release"},
		})
		Eventually(func() string { return call(ctx, clerk, wire.Status, `{"key":"billing:report"}`).outcome() }).WithTimeout(patience).Should(Equal("200"))
		for key, outcome := range map[string]string{"billing:report": "200", "billing:other": "403 FORBIDDEN"} {
			By("Forrst: " + key)
			arguments := `{"key":"` + key + `","owner":"o","reason":"r"}`
			for _, function := range []string{wire.Acquire, wire.Renew, wire.Status, wire.Release, wire.Acquire, wire.ForceRelease} {
				Expect(call(ctx, clerk, function, arguments).outcome()).To(Equal(outcome), function)
			}
			By("REST: " + key)
			path := "/v1/namespaces/" + namespace + "/locks/" + key
			want := func(status int) int {
				if outcome == "200" {
					return status
				}
				return http.StatusForbidden
			}
			Expect(rested(ctx, clerk, http.MethodPost, path, ofMinutes)).To(Equal(want(http.StatusCreated)))
			Expect(rested(ctx, clerk, http.MethodGet, path, "")).To(Equal(want(http.StatusOK)))
			Expect(rested(ctx, clerk, http.MethodPut, path, ofMinutes, "X-Lock-Token: none")).To(Equal(http.StatusForbidden), "for want of the token or of the right")
			Expect(rested(ctx, clerk, http.MethodDelete, path+"?force=true&reason=r", "")).To(Equal(want(http.StatusNoContent)))
		}
		Expect(call(ctx, clerk, wire.List, `{}`).outcome()).To(Equal("403 FORBIDDEN"))

		By("the API server, which knows the name of a server-side apply, and none for a POST")
		config := rest.AnonymousClientConfig(environment.Admin.Config)
		config.BearerToken = clerk
		client, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		locks := "/apis/forrst.dev/v1alpha1/namespaces/" + namespace + "/locks"
		manifest := func(name, key string) []byte {
			return []byte(`{"apiVersion":"forrst.dev/v1alpha1","kind":"Lock","metadata":{"name":"` + name + `"},"spec":{"key":"` + key + `","owner":"o"}}`)
		}
		apply := func(name, key string) error {
			return client.RESTClient().Patch(types.ApplyPatchType).AbsPath(locks, name).Param("fieldManager", "clerk").Body(manifest(name, key)).Do(ctx).Error()
		}
		// No webhook stamps the manifest here: it is refused as incomplete, once it is permitted.
		Expect(apierrors.IsInvalid(apply("billing--report", "billing:report"))).To(BeTrue())
		Expect(apierrors.IsForbidden(apply("billing--other", "billing:other"))).To(BeTrue())
		err = client.RESTClient().Post().AbsPath(locks).Body(manifest("billing--report", "billing:report")).Do(ctx).Error()
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
	})
})

var _ = Describe("A Role that names functions", func() {
	It("lets its users call those functions, and no others", func(ctx context.Context) {
		namespace, other := environment.Namespace(ctx, "auth-"), environment.Namespace(ctx, "auth-")
		caller := account(ctx, namespace, "caller", rbacv1.PolicyRule{
			Resources: []string{"functions"}, ResourceNames: []string{"r.f"}, Verbs: []string{"call"},
		})
		Eventually(func() string { return call(ctx, caller, "r.f", `{}`).outcome() }).WithTimeout(patience).Should(Equal("200"))
		learnt := service.last.Load()
		Expect(learnt.Get("Forrst-Caller")).To(Equal("system:serviceaccount:" + namespace + ":caller"))
		Expect(learnt.Get("Forrst-Namespace")).To(Equal(namespace))
		service.last.Store(nil)
		Expect(call(ctx, caller, "r.g", `{}`).outcome()).To(Equal("403 FORBIDDEN"))
		Expect(call(ctx, caller, "r.f", `{}`, "Forrst-Namespace: "+other).outcome()).To(Equal("403 FORBIDDEN"))
		Expect(call(ctx, token(ctx, createNamespace(ctx, "worker"), "worker"), "r.f", `{}`).outcome()).To(Equal("403 FORBIDDEN"))
		Expect(service.last.Load()).To(BeNil())
		Expect(call(ctx, caller, ping, `{}`).outcome()).To(Equal("200"))
	})
})

var _ = Describe("The status function", func() {
	It("shows the owner token to its holder and to callers that may force a release", func(ctx context.Context) {
		namespace := createNamespace(ctx, "worker", "rival")
		worker, rival := token(ctx, namespace, "worker"), token(ctx, namespace, "rival")
		Eventually(func() string {
			return call(ctx, worker, wire.Acquire, `{"key":"own","owner":"secret-owner"}`).outcome()
		}).
			WithTimeout(patience).Should(Equal("200"))
		shown := func(token string) string {
			got := call(ctx, token, status, `{"key":"own"}`)
			Expect(got.outcome()).To(Equal("200"))
			return string(got.Result)
		}
		Expect(shown(worker)).To(ContainSubstring(`"owner":"secret-owner"`))
		Expect(shown(rival)).To(And(ContainSubstring(`"locked":true`), Not(ContainSubstring("owner"))))
		path := "/v1/namespaces/" + namespace + "/locks/own"
		Expect(rested(ctx, rival, http.MethodGet, path, "")).To(Equal(http.StatusOK))
		grant(ctx, namespace, namespace, "rival", "force-release")
		Eventually(shown).WithArguments(rival).WithTimeout(patience).Should(ContainSubstring(`"owner":"secret-owner"`))
	})
})
