package install_test

import (
	"bytes"
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/testenv"
)

var _ = Describe("config/default", func() {
	var documents map[string][]byte

	BeforeEach(func(ctx context.Context) {
		rendered, err := environment.Kustomize(ctx, "default")
		Expect(err).NotTo(HaveOccurred())
		documents = map[string][]byte{}
		for document := range bytes.SplitSeq(rendered, []byte("\n---\n")) {
			var head metav1.PartialObjectMetadata
			Expect(yaml.Unmarshal(document, &head)).To(Succeed())
			documents[head.Kind+"/"+head.Name] = document
		}
	})

	It("is taken by the API server, but for what cert-manager defines", func(ctx context.Context) {
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

	It("runs in a namespace that enforces the restricted profile", func(ctx context.Context) {
		var deployment appsv1.Deployment
		Expect(yaml.UnmarshalStrict(documents["Deployment/lock-operator"], &deployment)).To(Succeed())
		clientset, err := kubernetes.NewForConfig(environment.Config)
		Expect(err).NotTo(HaveOccurred())
		pods := clientset.CoreV1().Pods(deployment.Namespace)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lock-operator"}, Spec: deployment.Spec.Template.Spec}
		_, err = pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())

		pod.Spec.Containers[0].SecurityContext = nil
		_, err = pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).To(MatchError(ContainSubstring(`violates PodSecurity "restricted`)), "the namespace enforces nothing")
	})

	It("keeps the operator's account, and it alone, out of the webhook", func(context.Context) {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		Expect(yaml.UnmarshalStrict(documents["MutatingWebhookConfiguration/lock-operator"], &configuration)).To(Succeed())
		Expect(configuration.Webhooks).To(HaveLen(1))
		Expect(configuration.Webhooks[0].MatchConditions).To(ConsistOf(HaveField("Expression",
			fmt.Sprintf("request.userInfo.username != '%s'", testenv.OperatorUser))))
		var account corev1.ServiceAccount
		Expect(yaml.UnmarshalStrict(documents["ServiceAccount/lock-operator"], &account)).To(Succeed())
		Expect("system:serviceaccount:" + account.Namespace + ":" + account.Name).To(Equal(testenv.OperatorUser))
		Expect(configuration.Annotations).To(HaveKeyWithValue("cert-manager.io/inject-ca-from", "forrst-system/lock-operator-webhook"))
	})
})
