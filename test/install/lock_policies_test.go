package install_test

import (
	"bytes"
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("The policies of locks", func() {
	It("are installed with everything else, into another namespace under other names", func(ctx context.Context) {
		manifests := overlayOf(ctx, renamedNamespace, renamedPrefix, "components: [CONFIG/guards, CONFIG/lock-policies]\n")
		text := string(bytes.Join(manifests, []byte("\n---\n")))
		Expect(text).NotTo(ContainSubstring("forrst-system"))
		Expect(text).NotTo(ContainSubstring(":lock-operator-"))
		Expect(text).To(ContainSubstring("object.spec.holder == 'system:serviceaccount:" + renamedNamespace + ":" + renamedPrefix + "lock-operator-controllers'"))
		Expect(text).To(ContainSubstring("policyName: team-lock-operator-job-creators\n"))
		policies := 0
		for _, manifest := range manifests {
			if bytes.Contains(manifest, []byte("kind: ValidatingAdmissionPolicy")) {
				policies++
				_, err := admin.Run(ctx, string(manifest), "apply", "--server-side", "--dry-run=server", "-f", "-")
				Expect(err).NotTo(HaveOccurred())
			}
		}
		Expect(policies).To(Equal(15), "eight policies and seven bindings")
	})

	It("are not a part of the default installation", func(ctx context.Context) {
		manifests, err := environment.Kustomize(ctx, "default")
		Expect(err).NotTo(HaveOccurred())
		text := string(bytes.Join(manifests, nil))
		Expect(text).NotTo(Or(ContainSubstring("lock-operator-keys"), ContainSubstring("lock-operator-durations"), ContainSubstring("lock-operator-job-creators")))
	})

	It("are bound as the samples do", func(ctx context.Context) {
		manifests, err := environment.Kustomize(ctx, "samples/lock-policies")
		Expect(err).NotTo(HaveOccurred())
		Expect(manifests).To(HaveLen(4))
		for _, manifest := range manifests {
			manifest = bytes.ReplaceAll(manifest, []byte("forrst-system"), []byte(testenv.OperatorNamespace))
			_, err := admin.Run(ctx, string(manifest), "apply", "--server-side", "--dry-run=server", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
		}
	})
})
