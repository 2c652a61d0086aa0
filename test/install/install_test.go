package install_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("config/default", func() {
	var documents map[string][]byte

	BeforeEach(func(ctx context.Context) { documents = rendered(ctx) })

	It("is accepted by the API server", func(ctx context.Context) {
		taken := 0
		for name, document := range documents {
			_, err := admin.Run(ctx, string(document), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), name)
			taken++
		}
		Expect(taken).To(BeNumerically(">=", 10))
	})

	It("has the policies of Jobs and of the controllers in force", func(context.Context) {
		for _, name := range []string{"lock-operator-jobs", "lock-operator-cronjobs", "lock-operator-job-status", "lock-operator-controllers"} {
			Expect(documents).To(HaveKey("ValidatingAdmissionPolicy/" + name))
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			Expect(yaml.UnmarshalStrict(documents["ValidatingAdmissionPolicyBinding/"+name], &binding)).To(Succeed())
			Expect(binding.Spec.PolicyName).To(Equal(name))
			Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		}
	})

	It("gives the operator's requests about Locks a priority level of their own, and no others", func(ctx context.Context) {
		_, err := admin.Run(ctx, string(documents["FlowSchema/lock-operator"]), "apply", "--server-side", "--force-conflicts", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		schema, err := admin.Run(ctx, "", "get", "flowschema", "lock-operator", "-o=jsonpath={.metadata.uid}")
		Expect(err).NotTo(HaveOccurred())
		for _, component := range components {
			operator, _, err := environment.User(ownUser(component), testenv.OperatorGroups...)
			Expect(err).NotTo(HaveOccurred())
			operatorClient, err := rest.HTTPClientFor(operator)
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
			Eventually(schemaOf("/apis/forrst.dev/v1alpha1/namespaces/default/locks")).WithTimeout(operatorTimeout).Should(Equal(schema), component)
			Eventually(schemaOf("/apis/coordination.k8s.io/v1/namespaces/forrst-system/leases/any")).Should(Equal(schema), component)
			Eventually(schemaOf("/api/v1/namespaces/default/pods")).ShouldNot(BeElementOf(schema, ""), component)
		}
	})

	It("keeps the operator's accounts, and them alone, out of the webhooks: all for Locks, the controllers for Jobs", func(context.Context) {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		Expect(yaml.UnmarshalStrict(documents["MutatingWebhookConfiguration/lock-operator"], &configuration)).To(Succeed())
		exempting := map[string]string{
			"lock.forrst.dev": fmt.Sprintf("!(request.userInfo.username in [ '%s', '%s', '%s'])", ownUser(facade), ownUser(controllers), ownUser(webhook)),
			"job.forrst.dev":  fmt.Sprintf("request.userInfo.username != '%s'", ownUser(controllers)),
		}
		Expect(configuration.Webhooks).To(HaveLen(len(exempting)))
		for _, webhook := range configuration.Webhooks {
			Expect(webhook.MatchConditions).To(ContainElement(HaveField("Expression", exempting[webhook.Name])), webhook.Name)
			// Kubernetes deletes without being asked; what else it does is looked at.
			Expect(webhook.MatchConditions).To(HaveEach(HaveField("Name", BeElementOf("not-the-operator", "not-a-delete-by-kubernetes"))), webhook.Name)
		}
		for _, component := range components {
			var account corev1.ServiceAccount
			Expect(yaml.UnmarshalStrict(documents["ServiceAccount/lock-operator-"+component], &account)).To(Succeed())
			Expect("system:serviceaccount:" + account.Namespace + ":" + account.Name).To(Equal(ownUser(component)))
		}
	})

	It("runs each component as its own account, in more than one replica, of which one may be evicted at a time", func(context.Context) {
		for _, component := range components {
			deployment := deploymentOf(documents, component)
			Expect(deployment.Spec.Template.Spec.ServiceAccountName).To(Equal("lock-operator-" + component))
			Expect(deployment.Spec.Replicas).To(HaveValue(BeNumerically(">=", 2)))
			var budget policyv1.PodDisruptionBudget
			Expect(yaml.UnmarshalStrict(documents["PodDisruptionBudget/lock-operator-"+component], &budget)).To(Succeed())
			Expect(budget.Spec.MaxUnavailable.IntValue()).To(Equal(1))
			for _, other := range components {
				selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
				Expect(err).NotTo(HaveOccurred())
				Expect(selector.Matches(labels.Set(deploymentOf(documents, other).Spec.Template.Labels))).To(Equal(other == component))
			}
		}
	})

	It("mounts the certificate of each component, and the key of the authority nowhere", func(context.Context) {
		for _, component := range components {
			Expect(documents).To(HaveKey("Secret/lock-operator-" + component))
			Expect(secretsOf(deploymentOf(documents, component))).To(ConsistOf("lock-operator-" + component))
		}
	})

	It("brings Secrets and the authorities' ConfigMap without data and type, so that applying it again keeps theirs", func(context.Context) {
		for _, name := range []string{"Secret/lock-operator-authority", "Secret/lock-operator-facade", "Secret/lock-operator-webhook", "Secret/lock-operator-controllers", "ConfigMap/lock-operator-authority"} {
			var fields map[string]any
			Expect(yaml.Unmarshal(documents[name], &fields)).To(Succeed())
			Expect(fields).To(And(HaveLen(3), HaveKey("metadata")), name)
		}
	})
})

var _ = Describe("config/samples/certmanager", func() {
	var documents map[string][]byte

	BeforeEach(func(ctx context.Context) { documents = renderedOf(ctx, "samples/certmanager") })

	It("gives the controllers no right to certificates and webhook configurations, and is accepted by the API server", func(ctx context.Context) {
		Expect(documents).NotTo(Or(HaveKey("Secret/lock-operator-authority"), HaveKey("ClusterRole/lock-operator-certificates"), HaveKey("Role/lock-operator-certificates")))
		Expect(deploymentOf(documents, controllers).Spec.Template.Spec.Containers[0].Args).NotTo(ContainElement(ContainSubstring("certificate-")))
		for name, document := range documents {
			if !bytes.Contains(document, []byte("apiVersion: cert-manager.io/")) {
				_, err := admin.Run(ctx, string(document), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
				Expect(err).NotTo(HaveOccurred(), name)
			}
		}
	})

	It("has cert-manager inject the authority into every webhook configuration", func(context.Context) {
		for _, name := range []string{"MutatingWebhookConfiguration/lock-operator", "ValidatingWebhookConfiguration/lock-operator-audit", "ValidatingWebhookConfiguration/lock-operator-guards"} {
			Expect(string(documents[name])).To(ContainSubstring("cert-manager.io/inject-ca-from: forrst-system/lock-operator-webhook\n"), name)
		}
	})

	It("has the components serve certificates that can issue none, of their own names", func(context.Context) {
		for _, component := range components {
			var certificate struct {
				Spec struct {
					IsCA       bool     `json:"isCA"`
					SecretName string   `json:"secretName"`
					DNSNames   []string `json:"dnsNames"`
					IssuerRef  struct {
						Name string `json:"name"`
					} `json:"issuerRef"`
				} `json:"spec"`
			}
			Expect(yaml.Unmarshal(documents["Certificate/lock-operator-"+component], &certificate)).To(Succeed())
			Expect(certificate.Spec.IsCA).To(BeFalse())
			Expect(certificate.Spec.DNSNames).To(ContainElement("lock-operator-" + component + ".forrst-system.svc"))
			var issuer struct {
				Spec struct {
					CA *struct {
						SecretName string `json:"secretName"`
					} `json:"ca"`
					SelfSigned *struct{} `json:"selfSigned"`
				} `json:"spec"`
			}
			Expect(yaml.Unmarshal(documents["Issuer/"+certificate.Spec.IssuerRef.Name], &issuer)).To(Succeed())
			Expect(issuer.Spec.CA).NotTo(BeNil())
			Expect(issuer.Spec.SelfSigned).To(BeNil(), "a certificate that signs itself is its own authority")
			Expect(certificate.Spec.SecretName).NotTo(Equal(issuer.Spec.CA.SecretName))
			Expect(secretsOf(deploymentOf(documents, component))).To(HaveEach(certificate.Spec.SecretName))
		}
	})
})

var _ = Describe("config/samples/facade", func() {
	It("is accepted by the API server, and shows the façade a token for its own audience and no other", func(ctx context.Context) {
		manifests, err := environment.Kustomize(ctx, "samples/facade")
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.Run(ctx, "", "create", "namespace", "payments")
		Expect(err).NotTo(HaveOccurred())
		audiences := 0
		for _, manifest := range manifests {
			var pod corev1.Pod
			if yaml.Unmarshal(manifest, &pod) == nil && pod.Kind == "Pod" {
				for _, volume := range pod.Spec.Volumes {
					for _, source := range volume.Projected.Sources {
						if source.ServiceAccountToken != nil {
							audiences++
							Expect(source.ServiceAccountToken.Audience).To(Equal(ownAudience))
						}
					}
				}
			}
			_, err := admin.Run(ctx, string(manifest), "apply", "--server-side", "--dry-run=server", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), "%s", manifest)
		}
		Expect(audiences).To(Equal(1))
	})
})

// ownUser is the user name that config/default gives a component.
func ownUser(component string) string {
	return "system:serviceaccount:" + ownNamespace + ":lock-operator-" + component
}

// secretsOf are the Secrets that the pods of a Deployment mount. There is at least one.
func secretsOf(deployment *appsv1.Deployment) []string {
	GinkgoHelper()
	var secrets []string
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.Secret != nil {
			secrets = append(secrets, volume.Secret.SecretName)
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil && !isAuthority(source.Secret.Items) {
				secrets = append(secrets, source.Secret.Name)
			}
		}
	}
	Expect(secrets).NotTo(BeEmpty())
	return secrets
}

// isAuthority reports whether the items of a Secret are what others verify its certificate by, and no key.
func isAuthority(items []corev1.KeyToPath) bool {
	return len(items) == 1 && items[0].Key == corev1.ServiceAccountRootCAKey
}

func deploymentOf(documents map[string][]byte, component string) *appsv1.Deployment {
	GinkgoHelper()
	var deployment appsv1.Deployment
	Expect(yaml.UnmarshalStrict(documents["Deployment/lock-operator-"+component], &deployment)).To(Succeed())
	return &deployment
}

// rendered returns the documents of config/default by kind and name.
func rendered(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	return renderedOf(ctx, "default")
}

// renderedOf is [rendered] for another folder of config/.
func renderedOf(ctx context.Context, folder string) map[string][]byte {
	GinkgoHelper()
	manifests, err := environment.Kustomize(ctx, folder)
	Expect(err).NotTo(HaveOccurred())
	documents := map[string][]byte{}
	for _, document := range manifests {
		var head metav1.PartialObjectMetadata
		Expect(yaml.Unmarshal(document, &head)).To(Succeed())
		documents[head.Kind+"/"+head.Name] = document
	}
	return documents
}
