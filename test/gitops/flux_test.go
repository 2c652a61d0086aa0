package gitops_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// runFlux runs the program in test/gitops/flux, and returns what it prints.
func runFlux(ctx context.Context, as *testenv.Kubectl, arguments ...string) (string, error) {
	GinkgoHelper()
	program, err := testenv.BuildModule(ctx, "test/gitops/flux")
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, program, arguments...)
	// Impersonation reads it from the environment only.
	command.Env = append(os.Environ(), "KUBECONFIG="+as.Kubeconfig())
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("flux: %w: %s", err, output)
	}
	return string(output), nil
}

var _ = Describe("Flux's engine", func() {
	It("acquires a lock by one write, and finds it unchanged afterwards", func(ctx context.Context) {
		for title, rest := range manifests() {
			By(title)
			path, name := folder("gitops:flux", rest)
			Expect(runFlux(ctx, kubectl[flux], filepath.Join(path, "manifest.yaml"))).To(ContainSubstring(name + " created"))
			before := stored(ctx, name)
			for range 2 {
				Expect(runFlux(ctx, kubectl[flux], filepath.Join(path, "manifest.yaml"))).To(ContainSubstring(name + " unchanged"))
				Expect(stored(ctx, name)).To(Equal(before), title)
			}
			Expect(get(ctx, name).Spec.FencingToken).To(BeNil(), "a second write records the token")
			must(kubectl[flux].Run(ctx, "", "delete", "lock", name, "--namespace=default"))
		}
	})

	It("applies nothing of a Kustomization with a freeze whose end is over", func(ctx context.Context) {
		path, _ := folder("gitops:over", "  owner: repository\n  expireTime: 2020-01-01T00:00:00Z\n")
		lock := must(os.ReadFile(filepath.Join(path, "manifest.yaml")))
		write(path, "manifest.yaml", string(lock)+"---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: beside-a-freeze\n  namespace: default\n")
		_, err := runFlux(ctx, environment.Admin.Kubectl, filepath.Join(path, "manifest.yaml"))
		Expect(err).To(MatchError(ContainSubstring("must be in the future")))
		err = admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "beside-a-freeze"}, &corev1.ConfigMap{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(err).To(HaveOccurred())
	})

	It("waits for a Job under a lock by the expressions of the sample, under a service account", func(ctx context.Context) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop-deployer"}}
		Expect(admin.Create(ctx, account)).To(Succeed())
		must(environment.Admin.Kubectl.Run(ctx, "", "create", "rolebinding", "shop-deployer", "--namespace=default", "--clusterrole=cluster-admin", "--serviceaccount=default:shop-deployer"))
		sample := filepath.Join("..", "..", "config", "samples", "flux", "migration.yaml")
		m := migrations(2, "")[1]
		Expect(admin.Create(ctx, fixture.Manifest(m.namespace, m.key))).To(Succeed())
		manifest := filepath.Join(m.folder, "job.yaml")

		By("without expressions, and without a service account")
		must(runFlux(ctx, environment.Admin.Kubectl, manifest))
		Eventually(ctx, func() []batchv1.JobCondition { return m.job(ctx).Status.Conditions }).WithTimeout(timeout).ShouldNot(BeEmpty())
		must(runFlux(ctx, environment.Admin.Kubectl, "-wait=2s", manifest))
		must(runFlux(ctx, environment.Admin.Kubectl, "-wait=2s", "-kustomization="+sample, manifest))

		By("with both")
		waiting := []string{"-kustomization=" + sample, "-service-account=shop-deployer", manifest}
		_, err := runFlux(ctx, environment.Admin.Kubectl, append([]string{"-wait=2s"}, waiting...)...)
		Expect(err).To(MatchError(ContainSubstring("InProgress")))
		Expect(testenv.RemoveLock(ctx, admin, m.namespace, v1alpha1.FullKeyOf(m.key).ObjectName())).To(Succeed())
		Eventually(ctx, func() *corev1.Pod { return m.runningPod(ctx) }).WithTimeout(timeout).ShouldNot(BeNil())
		_, err = runFlux(ctx, environment.Admin.Kubectl, append([]string{"-wait=2s"}, waiting...)...)
		Expect(err).To(MatchError(ContainSubstring("InProgress")))
		node.End(m.runningPod(ctx).UID)
		must(runFlux(ctx, environment.Admin.Kubectl, append([]string{"-wait=30s"}, waiting...)...))
		Expect(client.IgnoreNotFound(admin.Delete(ctx, account))).To(Succeed())
	})
})
