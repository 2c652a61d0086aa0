package install_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// There is no network to try them in: these specs hold what policies, Services and the
// Deployment say against each other.
var _ = Describe("The network policies of config/default", func() {
	var documents map[string][]byte

	BeforeEach(func(ctx context.Context) { documents = rendered(ctx) })

	policy := func(name string) networkingv1.NetworkPolicySpec {
		GinkgoHelper()
		var policy networkingv1.NetworkPolicy
		Expect(yaml.UnmarshalStrict(documents["NetworkPolicy/"+name], &policy)).To(Succeed())
		Expect(policy.Namespace).To(Equal(ownNamespace))
		Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
		return policy.Spec
	}
	deployment := func() corev1.PodTemplateSpec {
		GinkgoHelper()
		var deployment appsv1.Deployment
		Expect(yaml.UnmarshalStrict(documents["Deployment/lock-operator"], &deployment)).To(Succeed())
		return deployment.Spec.Template
	}

	It("deny everything to every pod of the namespace first", func(context.Context) {
		denied := policy("default-deny")
		Expect(denied.PodSelector).To(Equal(metav1.LabelSelector{}))
		Expect(denied.Ingress).To(BeEmpty())
		Expect(denied.Egress).To(BeEmpty())
	})

	It("let the operator's pods be reached at each port but the one of the probes", func(context.Context) {
		allowed, pod := policy("lock-operator"), deployment()
		selector, err := metav1.LabelSelectorAsSelector(&allowed.PodSelector)
		Expect(err).NotTo(HaveOccurred())
		Expect(selector.Matches(labels.Set(pod.Labels))).To(BeTrue(), "the policy is for other pods")

		open := map[string][]networkingv1.NetworkPolicyPeer{}
		for _, rule := range allowed.Ingress {
			Expect(rule.Ports).NotTo(BeEmpty(), "a rule opens every port")
			for _, port := range rule.Ports {
				open[port.Port.StrVal] = rule.From
			}
		}
		for _, port := range pod.Spec.Containers[0].Ports {
			if port.Name != "probes" {
				Expect(open).To(HaveKey(port.Name))
			}
		}
		Expect(open).NotTo(HaveKey("probes"))
		Expect(open["webhook"]).To(BeEmpty(), "the API server, which is no pod, must reach the webhook")
		Expect(open["facade"]).To(ConsistOf(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}))
		Expect(open["metrics"]).To(ConsistOf(HaveField("NamespaceSelector.MatchLabels", Not(BeEmpty()))))
	})

	It("let them reach the API server, DNS and routed services, and nothing else", func(context.Context) {
		var anywhere, dns []int32
		services := 0
		for _, rule := range policy("lock-operator").Egress {
			var ports []int32
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.IntVal)
			}
			switch {
			case len(rule.To) == 0:
				anywhere = append(anywhere, ports...)
			case len(ports) == 0:
				Expect(rule.To).To(ConsistOf(HaveField("NamespaceSelector.MatchLabels", HaveKey("forrst.dev/routed"))))
				services++
			default:
				Expect(rule.To).To(ConsistOf(HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", "kube-system"))))
				dns = append(dns, ports...)
			}
		}
		Expect(anywhere).To(ConsistOf(int32(443), int32(6443)))
		Expect(dns).To(ConsistOf(int32(53), int32(53)))
		Expect(services).To(Equal(1))
	})

	It("select ports by names that the Services and pods have", func(context.Context) {
		pod, names := deployment(), map[string]bool{}
		for _, port := range pod.Spec.Containers[0].Ports {
			names[port.Name] = true
		}
		services := 0
		for name, document := range documents {
			var service corev1.Service
			if yaml.Unmarshal(document, &service) != nil || service.Kind != "Service" {
				continue
			}
			services++
			Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))).To(BeTrue(), name)
			for _, port := range service.Spec.Ports {
				Expect(names).To(HaveKey(port.TargetPort.StrVal), name)
			}
		}
		Expect(services).To(BeNumerically(">=", 1))
	})
})
