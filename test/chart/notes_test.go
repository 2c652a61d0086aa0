package chart_test

import (
	"strings"
	"testing"
)

// TestNotes says what Helm tells after an installation. "!" is before what it does not tell.
func TestNotes(t *testing.T) {
	const (
		monitored = "metrics.serviceMonitor.enabled=true"
		read      = monitored + ",metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring"
	)
	for _, test := range []struct {
		flags string
		want  []string
	}{
		{"", []string{"https://lock-operator-facade.forrst-system.svc", "kubectl label namespace forrst-system pod-security.kubernetes.io/enforce=restricted", "!WARNING", "!Prometheus"}},
		{"namespace.create=true", []string{"!pod-security"}},
		{"webhook.hostNetwork=true", []string{"!pod-security"}},
		{monitored, []string{"\n  metrics: enabled\n", "the ClusterRole lock-operator-metrics."}},
		{monitored + ",networkPolicy.metricsNamespaceLabels.team=a", []string{"\n  team: a\n", "!metrics: enabled"}},
		{monitored + ",networkPolicy.enabled=false", []string{"!metrics: enabled"}},
		{monitored + ",userRoles.create=false", []string{"bind it yourself.", "!ClusterRole"}},
		{read, []string{"metrics: enabled", "!metrics.serviceMonitor.reader"}},
		{"facade.service.type=LoadBalancer", []string{"WARNING: the Service of the façade has the type LoadBalancer"}},
		{"facade.service.type=LoadBalancer,networkPolicy.facadeFrom[0].ipBlock.cidr=10.0.0.0/8", []string{"!WARNING"}},
		{"facade.service.type=NodePort,networkPolicy.enabled=false", []string{"!WARNING"}},
		{"settings.holderKinds={Deployment.apps}", []string{"WARNING: settings.holderKinds"}},
		{"settings.holderKinds={Deployment.apps},holderRules[0].apiGroups={apps},holderRules[0].resources={deployments},holderRules[0].verbs={get}", []string{"!WARNING"}},
	} {
		t.Run(test.flags, func(t *testing.T) {
			output, err := helm(t.Context(), "install", release, chart, "--dry-run=client", "--namespace="+namespace, "--set="+test.flags)
			if err != nil {
				t.Fatal(err)
			}
			_, notes, isThere := strings.Cut(output, "\nNOTES:\n")
			if !isThere {
				t.Fatal("there are no notes")
			}
			for _, want := range test.want {
				text := strings.TrimPrefix(want, "!")
				if strings.Contains(notes, text) != (text == want) {
					t.Errorf("want %q in:\n%s", want, notes)
				}
			}
		})
	}
}
