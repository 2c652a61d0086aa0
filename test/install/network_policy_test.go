package install_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// There is no network to try them in: these specs hold what policies, Services and
// Deployments say against each other.
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
	It("deny everything to every pod of the namespace first", func(context.Context) {
		denied := policy("lock-operator-default-deny")
		Expect(denied.PodSelector).To(Equal(metav1.LabelSelector{}))
		Expect(denied.Ingress).To(BeEmpty())
		Expect(denied.Egress).To(BeEmpty())
	})

	// united returns what all policies together allow to the pods of the component: policies add up.
	united := func(component string) (all networkingv1.NetworkPolicySpec) {
		GinkgoHelper()
		pods := labels.Set(deploymentOf(documents, component).Spec.Template.Labels)
		for document := range documents {
			name, isPolicy := strings.CutPrefix(document, "NetworkPolicy/")
			if !isPolicy {
				continue
			}
			spec := policy(name)
			selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
			Expect(err).NotTo(HaveOccurred())
			if selector.Matches(pods) {
				all.Ingress = append(all.Ingress, spec.Ingress...)
				all.Egress = append(all.Egress, spec.Egress...)
			}
		}
		return all
	}

	// opened returns, for each port of the component's pods, the peers of each rule that opens it. A rule
	// without peers opens it to all addresses.
	opened := func(component string) map[string][][]networkingv1.NetworkPolicyPeer {
		GinkgoHelper()
		open := map[string][][]networkingv1.NetworkPolicyPeer{}
		for _, rule := range united(component).Ingress {
			Expect(rule.Ports).NotTo(BeEmpty(), "a rule opens every port")
			for _, port := range rule.Ports {
				Expect(port.EndPort).To(BeNil(), "a rule opens a range of ports")
				open[port.Port.String()] = append(open[port.Port.String()], rule.From)
			}
		}
		return open
	}

	It("are for the pods of one component each", func(context.Context) {
		for _, component := range components {
			selector, err := metav1.LabelSelectorAsSelector(new(policy("lock-operator-" + component).PodSelector))
			Expect(err).NotTo(HaveOccurred())
			for _, other := range components {
				Expect(selector.Matches(labels.Set(deploymentOf(documents, other).Spec.Template.Labels))).To(Equal(other == component))
			}
		}
	})

	It("let tenants reach the façade alone, the API server the webhook, and nothing the controllers", func(context.Context) {
		for _, component := range components {
			open := opened(component)
			Expect(open["metrics"]).To(ConsistOf(ConsistOf(HaveField("NamespaceSelector.MatchLabels", Not(BeEmpty())))), component)
			delete(open, "metrics")
			switch component {
			case facade:
				Expect(open).To(Equal(map[string][][]networkingv1.NetworkPolicyPeer{
					"facade": {{{NamespaceSelector: &metav1.LabelSelector{}}}},
					"peers":  {{{PodSelector: replicasOf(facade)}, {PodSelector: replicasOf(controllers)}}},
				}))
			case webhook:
				Expect(open).To(HaveLen(1))
				Expect(open).To(HaveKeyWithValue("webhook", ConsistOf(BeEmpty())), "the API server, which is no pod, must reach the webhook")
			case controllers:
				Expect(open).To(BeEmpty())
			}
		}
	})

	It("open each port of the pods but the one of the probes", func(context.Context) {
		for _, component := range components {
			open := opened(component)
			for _, port := range deploymentOf(documents, component).Spec.Template.Spec.Containers[0].Ports {
				if port.Name == "probes" {
					Expect(open).NotTo(HaveKey(port.Name), component)
				} else {
					Expect(open).To(HaveKey(port.Name), component)
				}
			}
		}
	})

	DescribeTable("let them reach nothing but", func(_ context.Context, component string, reachesRouted, reachesReplicas bool) {
		var anywhere, dns []int32
		services, replicas := 0, 0
		for _, rule := range united(component).Egress {
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
			case rule.Ports[0].Port.StrVal == "peers":
				Expect(rule.Ports).To(HaveLen(1))
				Expect(rule.To).To(ConsistOf(networkingv1.NetworkPolicyPeer{PodSelector: replicasOf(facade)}))
				replicas++
			default:
				Expect(rule.To).To(ConsistOf(HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", "kube-system"))))
				dns = append(dns, ports...)
			}
		}
		Expect(anywhere).To(ConsistOf(int32(443), int32(6443)))
		if reachesReplicas {
			Expect(replicas).To(Equal(1))
		} else {
			Expect(replicas).To(BeZero())
		}
		if !reachesRouted {
			Expect(dns).To(BeEmpty())
			Expect(services).To(BeZero())
			return
		}
		Expect(dns).To(ConsistOf(int32(53), int32(53)))
		Expect(services).To(Equal(1))
	},
		Entry("the API server, DNS, routed services and its other replicas, for the façade", facade, true, true),
		Entry("the API server and the façade, for the controllers", controllers, false, true),
		Entry("the API server, for the webhook", webhook, false, false),
	)

	It("select ports by names that the Services and pods have", func(context.Context) {
		services := 0
		for name, document := range documents {
			var service corev1.Service
			if yaml.Unmarshal(document, &service) != nil || service.Kind != "Service" {
				continue
			}
			services++
			selected := 0
			for _, component := range components {
				template := deploymentOf(documents, component).Spec.Template
				if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) {
					continue
				}
				selected++
				for _, port := range service.Spec.Ports {
					if service.Spec.ClusterIP != corev1.ClusterIPNone {
						Expect(port.Port).To(Equal(int32(443)), name)
					}
					Expect(template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", port.TargetPort.StrVal)), name)
				}
			}
			Expect(selected).To(Equal(1), name)
		}
		Expect(services).To(Equal(3), "those of façade, its replicas among each other, and webhook")
	})
})

// replicasOf selects the pods of a component in the namespace of the policy.
func replicasOf(component string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "lock-operator", "app.kubernetes.io/component": component}}
}
