//go:build nightly

package chart_test

import (
	"strings"
	"testing"
)

// TestNightlyTheProviderOfCertificatesChanges follows docs/certificates.md from own certificates to cert-manager, and back.
func TestNightlyTheProviderOfCertificatesChanges(t *testing.T) {
	const (
		namespace = "forrst-system" // As the page has it.
		uids      = "-o=jsonpath={.items[*].metadata.uid} {.items[*].data}"
	)
	secrets := []string{"lock-operator-authority", "lock-operator-controllers", "lock-operator-facade", "lock-operator-webhook"}
	cluster := start(t)
	get := func(arguments ...string) string {
		t.Helper()
		return cluster.must(t, append([]string{"get", "--namespace=" + namespace}, arguments...)...)
	}
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--create-namespace")
	defer cluster.must(t, "delete", "customresourcedefinition/locks.forrst.dev", "--timeout=60s")
	for _, secret := range secrets {
		cluster.must(t, "patch", "secret", secret, "-n", namespace, "--field-manager=operator", "--type=merge", `-p={"data":{"tls.key":"Cg=="}}`)
	}
	contents := func() string { return get(append([]string{"secrets", uids}, secrets...)...) }
	before := contents()
	if strings.Count(before, "Cg==") != len(secrets) {
		t.Fatalf("the Secrets have %s", before)
	}

	cluster.documented(t, "certificates.md", "kubectl annotate secrets --namespace forrst-system --selector")
	if after := contents(); after != before {
		t.Errorf("with cert-manager, the Secrets have %s, want %s", after, before)
	}
	if found := get("certificates,configmaps", "-o=name"); strings.Count(found, "certificate.cert-manager.io/") != 4 || strings.Contains(found, "configmap/lock-operator") {
		t.Errorf("with cert-manager, there are %s", found)
	}
	if kept := get("secrets", "-o=jsonpath={.items[*].metadata.annotations.helm\\.sh/resource-policy}"); kept != "" {
		t.Errorf("Secrets have the policy %q", kept)
	}

	// As if cert-manager had made them.
	for _, secret := range secrets {
		cluster.must(t, "annotate", "secret", secret, "-n", namespace, "cert-manager.io/certificate-name="+secret, "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
		cluster.must(t, "label", "secret", secret, "-n", namespace, "app.kubernetes.io/managed-by-")
	}
	cluster.documented(t, "certificates.md", "helm upgrade lock-operator charts/lock-operator --namespace forrst-system --reset-then-reuse-values \\\n  --set certificates.provider=self")
	if after := contents(); after != before {
		t.Errorf("with own certificates again, the Secrets have %s, want %s", after, before)
	}
	if kept := get("secrets", "-o=jsonpath={.items[*].metadata.annotations.cert-manager\\.io/certificate-name}"); kept != "" {
		t.Errorf("Secrets are still of the Certificates %q", kept)
	}
	if found := get("certificates,issuers,configmaps", "-o=name"); strings.Contains(found, "cert-manager.io") || !strings.Contains(found, "configmap/lock-operator-authority") {
		t.Errorf("with own certificates again, there are %s", found)
	}
	cluster.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks")
	if left := cluster.remaining(t); len(left) != 1 {
		t.Errorf("uninstalling leaves %q, want the CRD alone", left)
	}
}
