package install_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("config/default", func() {
	var documents map[string][]byte

	BeforeEach(func(ctx context.Context) { documents = rendered(ctx) })

	It("is accepted by the API server except for the resources of cert-manager", func(ctx context.Context) {
		taken := 0
		for name, document := range documents {
			if bytes.Contains(document, []byte("apiVersion: cert-manager.io/")) {
				continue
			}
			_, err := admin.Run(ctx, string(document), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), name)
			taken++
		}
		Expect(taken).To(BeNumerically(">=", 10))
	})

	It("has the policies that refuse Jobs with a forgotten label, in force", func(context.Context) {
		for _, name := range []string{"lock-operator-jobs", "lock-operator-cronjobs"} {
			Expect(documents).To(HaveKey("ValidatingAdmissionPolicy/" + name))
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			Expect(yaml.UnmarshalStrict(documents["ValidatingAdmissionPolicyBinding/"+name], &binding)).To(Succeed())
			Expect(binding.Spec.PolicyName).To(Equal(name))
			Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		}
	})

	It("gives the operator's requests about Locks a priority level of their own, and no others", func(ctx context.Context) {
		operator, _, err := environment.User(testenv.OperatorUser, testenv.OperatorGroups...)
		Expect(err).NotTo(HaveOccurred())
		operatorClient, err := rest.HTTPClientFor(operator)
		Expect(err).NotTo(HaveOccurred())
		schema, err := admin.Run(ctx, "", "get", "flowschema", "lock-operator", "-o=jsonpath={.metadata.uid}")
		Expect(err).NotTo(HaveOccurred())
		schemaOf := func(path string) func(Gomega) string {
			return func(g Gomega) string {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, operator.Host+path, http.NoBody)
				g.Expect(err).NotTo(HaveOccurred())
				response, err := operatorClient.Do(request)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(response.Body.Close()).To(Succeed())
				return response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
			}
		}
		Eventually(schemaOf("/apis/forrst.dev/v1alpha1/namespaces/default/locks")).WithTimeout(operatorTimeout).Should(Equal(schema))
		Eventually(schemaOf("/apis/coordination.k8s.io/v1/namespaces/forrst-system/leases/any")).Should(Equal(schema))
		Eventually(schemaOf("/api/v1/namespaces/default/pods")).ShouldNot(BeElementOf(schema, ""))
	})

	It("keeps the operator's account, and it alone, out of the webhook", func(context.Context) {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		Expect(yaml.UnmarshalStrict(documents["MutatingWebhookConfiguration/lock-operator"], &configuration)).To(Succeed())
		Expect(configuration.Webhooks).NotTo(BeEmpty())
		for _, webhook := range configuration.Webhooks {
			Expect(webhook.MatchConditions).To(ContainElement(HaveField("Expression",
				fmt.Sprintf("request.userInfo.username != '%s'", testenv.OperatorUser))), webhook.Name)
			// Kubernetes deletes without being asked; what else it does is looked at.
			Expect(webhook.MatchConditions).To(HaveEach(HaveField("Name", BeElementOf("not-the-operator", "not-a-delete-by-kubernetes"))), webhook.Name)
		}
		var account corev1.ServiceAccount
		Expect(yaml.UnmarshalStrict(documents["ServiceAccount/lock-operator"], &account)).To(Succeed())
		Expect("system:serviceaccount:" + account.Namespace + ":" + account.Name).To(Equal(testenv.OperatorUser))
		Expect(configuration.Annotations).To(HaveKeyWithValue("cert-manager.io/inject-ca-from", "forrst-system/lock-operator-webhook"))
	})
})

// rendered returns the documents of config/default by kind and name.
func rendered(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	manifests, err := environment.Kustomize(ctx, "default")
	Expect(err).NotTo(HaveOccurred())
	documents := map[string][]byte{}
	for _, document := range manifests {
		var head metav1.PartialObjectMetadata
		Expect(yaml.Unmarshal(document, &head)).To(Succeed())
		documents[head.Kind+"/"+head.Name] = document
	}
	return documents
}
