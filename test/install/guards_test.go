package install_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("An installation with guards into another namespace under other names", Ordered, func() {
	const shop = "guarded-shop"
	var (
		installed *installation
		stranger  *testenv.Kubectl
	)
	lock := func(namespace, name, guards string) string {
		return fmt.Sprintf("apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: %s, namespace: %s}\nspec: {key: %[1]s, guards: [%[3]s]}\n", name, namespace, guards)
	}
	create := func(ctx context.Context, who *testenv.Kubectl, manifest string) error {
		_, err := who.Run(ctx, manifest, "create", "-f", "-")
		return err
	}

	BeforeAll(func(ctx context.Context) {
		installed = install(ctx, renamedNamespace, renamedPrefix, overlayOf(ctx, renamedNamespace, renamedPrefix, "components: [CONFIG/guards]\n"))
		for _, component := range []string{controllers, webhook} {
			installed.run(ctx, component, "--leader-elect=false")
		}
		var err error
		_, stranger, err = environment.User("stranger", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.Run(ctx, "", "create", "namespace", shop)
		Expect(err).NotTo(HaveOccurred())
		for _, namespace := range []string{shop, renamedNamespace} {
			_, err = admin.Run(ctx, "", "label", "namespace", namespace, "forrst.dev/guards=enabled")
			Expect(err).NotTo(HaveOccurred())
		}
		// The API server takes a moment to load the configurations.
		Eventually(create).WithContext(ctx).WithTimeout(operatorTimeout).WithArguments(admin,
			lock(shop, "rollout", "{resource: configmaps, selector: {}}, {group: batch, resource: jobs, selector: {}}")).Should(Succeed())
	})

	It("has no manifest that names the former namespace or service account, and the flag", func() {
		text := string(bytes.Join(installed.manifests, []byte("\n---\n")))
		Expect(text).NotTo(ContainSubstring("forrst-system"))
		Expect(text).NotTo(ContainSubstring(":lock-operator-"))
		Expect(strings.Count(text, "request.userInfo.username != '"+installed.user(controllers)+"'")).To(Equal(4), "one each for Jobs, their status, guarded objects and the fence")
		Expect(text).To(ContainSubstring("resourceNames:\n  - team-lock-operator-audit\n  - team-lock-operator-guards\n"), "the controllers may write its caBundle")
		Expect(strings.Count(text, "        - --guards\n")).To(Equal(1), "for the webhook alone")
	})

	It("lets only the holder of a lock write what it guards", func(ctx context.Context) {
		settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: " + shop + "}\n"
		Eventually(func(ctx context.Context) error {
			_, err := stranger.Run(ctx, settings, "create", "--dry-run=server", "-f", "-")
			return err
		}).WithContext(ctx).WithTimeout(operatorTimeout).Should(MatchError(ContainSubstring(`is guarded by the lock "rollout"`)))
		Expect(create(ctx, stranger, settings)).To(MatchError(ContainSubstring("(Forbidden)")))
		Expect(create(ctx, admin, settings)).To(Succeed())
	})

	It("starts a guarded Job under a lock, as the operator", func(ctx context.Context) {
		Expect(create(ctx, admin, `
apiVersion: batch/v1
kind: Job
metadata: {name: locked, namespace: `+shop+`, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: guarded-job}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`)).To(Succeed())
		Eventually(func(ctx context.Context) (string, error) {
			return admin.Run(ctx, "", "get", "job", "locked", "-n", shop, "-o=jsonpath={.spec.suspend}")
		}).WithContext(ctx).WithTimeout(operatorTimeout).Should(Equal("false"))
	})

	It("takes no guards in the namespace of the operator", func(ctx context.Context) {
		Expect(create(ctx, admin, lock(renamedNamespace, "rollout", "{resource: configmaps, selector: {}}"))).To(
			MatchError(ContainSubstring("which their webhook configuration leaves out")))
	})

	It("refuses a fenced write with an older token, as elsewhere", func(ctx context.Context) {
		fenced := func(token, data string) string {
			return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fenced, namespace: " + shop +
				", annotations: {forrst.dev/fenced-by: rollout, forrst.dev/fencing-token: \"" + token + "\"}}\ndata: {a: " + data + "}\n"
		}
		Expect(create(ctx, admin, fenced("100", "first"))).To(Succeed())
		_, err := admin.Run(ctx, fenced("99", "second"), "replace", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring("the object is fenced by the lock of key rollout")))
	})
})
