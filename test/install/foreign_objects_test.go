package install_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

// foreignObjects are objects of an overlay that do not belong to the operator: a
// ServiceAccount and a Certificate of the given names, and a webhook configuration.
const foreignObjects = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: %s, namespace: tenant, annotations: {forrst.dev/user: "foreign:account:stays:same"}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: %s, namespace: tenant}
spec: {secretName: foreign, dnsNames: [foreign.tenant.svc, locks.example.com]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: foreign, annotations: {cert-manager.io/inject-ca-from: tenant/foreign}}
webhooks:
- name: foreign.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://foreign.example.com"}
  matchConditions: [{name: not-the-operator, expression: "request.userInfo.username != 'foreign-user'"}]
`

var _ = DescribeTable("config/identity leaves the other objects of an overlay as they are",
	func(ctx context.Context, header, account, certificate, user string) {
		root, err := testenv.ModuleRoot()
		Expect(err).NotTo(HaveOccurred())
		overlay := GinkgoT().TempDir()
		config, err := filepath.Rel(overlay, filepath.Join(root, "config"))
		Expect(err).NotTo(HaveOccurred())
		kustomization := fmt.Sprintf("%s\nresources: [%s/default, foreign.yaml]\ntransformers: [%[2]s/identity]\n", header, config)
		Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(overlay, "foreign.yaml"), fmt.Appendf(nil, foreignObjects, account, certificate), 0o600)).To(Succeed())
		folder, err := filepath.Rel(filepath.Join(root, "config"), overlay)
		Expect(err).NotTo(HaveOccurred())

		manifests, err := environment.Kustomize(ctx, folder)
		Expect(err).NotTo(HaveOccurred())
		text := string(bytes.Join(manifests, []byte("\n---\n")))
		Expect(text).To(And(
			ContainSubstring("forrst.dev/user: foreign:account:stays:same\n"),
			ContainSubstring("  dnsNames:\n  - foreign.tenant.svc\n  - locks.example.com\n"),
			ContainSubstring("cert-manager.io/inject-ca-from: tenant/foreign\n"),
			ContainSubstring("expression: request.userInfo.username != 'foreign-user'\n"),
		))
		Expect(strings.Count(text, "'"+user+"'")).To(Equal(4), "for Locks, for Jobs and for two policies")
		Expect(text).To(ContainSubstring("forrst.dev/user: " + user + "\n"))
	},
	Entry("in another namespace", "namespace: platform-locks\nnamePrefix: team-", "worker", "shop-gateway",
		"system:serviceaccount:platform-locks:team-lock-operator-controllers"),
	Entry("with the same names in a namespace of their own", "namePrefix: team-", "lock-operator-controllers", "lock-operator-webhook",
		"system:serviceaccount:forrst-system:team-lock-operator-controllers"),
)
