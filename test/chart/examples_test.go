package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestTracesReachTheCollector renders the values of docs/tracing.md: each component has to find the collector and to reach it.
func TestTracesReachTheCollector(t *testing.T) {
	rendered := render(t, "--values="+valuesOf(t, "tracing.md", "extraEnv:"))
	for _, component := range components {
		env, _ := rendered.at(t, "Deployment/lock-operator-"+component, "spec template spec containers 0 env").([]any)
		if !slices.ContainsFunc(env, func(variable any) bool {
			fields, _ := variable.(map[string]any)
			return fields["name"] == "OTEL_EXPORTER_OTLP_ENDPOINT" && fields["value"] == "http://otel-collector.observability.svc:4318"
		}) {
			t.Errorf("%s has the environment %v", component, env)
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(rendered["NetworkPolicy/lock-operator-"+component].Object, &policy); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			namespace string
			port      int
			protocol  corev1.Protocol
		}{{"observability", 4318, corev1.ProtocolTCP}, {"kube-system", 53, corev1.ProtocolUDP}, {"kube-system", 53, corev1.ProtocolTCP}} {
			if !slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
					return peer.NamespaceSelector != nil && peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] == want.namespace
				}) && slices.ContainsFunc(rule.Ports, func(port networkingv1.NetworkPolicyPort) bool {
					protocol := corev1.ProtocolTCP
					if port.Protocol != nil {
						protocol = *port.Protocol
					}
					return port.Port.IntValue() == want.port && protocol == want.protocol
				})
			}) {
				t.Errorf("%s does not reach %v", component, want)
			}
		}
	}
}

// TestHelmTestReachesTheDNS renders the values of docs/install.md for clusters whose DNS is elsewhere: the Pod of helm
// test calls the façade by name.
func TestHelmTestReachesTheDNS(t *testing.T) {
	rendered := render(t, "--values="+valuesOf(t, "install.md", "networkPolicy:\n  extraEgress:"))
	for _, policy := range []string{"hooks", "facade"} {
		text, err := yaml.Marshal(rendered.at(t, "NetworkPolicy/lock-operator-"+policy, "spec egress"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"openshift-dns", "169.254.20.10/32"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not reach %s", policy, want)
			}
		}
	}
}

// valuesOf is a file with the values that a page of docs gives as an example, from their beginning.
func valuesOf(t *testing.T, page, beginning string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, isThere := strings.Cut(string(text), "```yaml\n"+beginning)
	block, _, _ := strings.Cut(rest, "```")
	if !isThere {
		t.Fatalf("docs/%s has no block %q", page, beginning)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(beginning+block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
