package gitops_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// The identities of two pipelines that run Helm.
const (
	pipeline      = "system:serviceaccount:default:shop-pipeline"
	otherPipeline = "system:serviceaccount:default:orders-pipeline"
)

// helmUser returns the kubeconfig of a pipeline that may install releases in the namespace default, and
// has the role lock-operator-edit.
func helmUser(ctx context.Context, name string) *testenv.Kubectl {
	GinkgoHelper()
	_, user, err := environment.User(name, "system:serviceaccounts", "system:authenticated")
	Expect(err).NotTo(HaveOccurred())
	// The role edit is empty without the controller that aggregates it.
	for _, role := range []string{"lock-operator-edit", "system:aggregate-to-edit", "system:aggregate-to-view"} {
		binding := fmt.Sprintf("helm-%d", time.Now().UnixNano())
		must(environment.Admin.Kubectl.Run(ctx, "", "create", "rolebinding", binding, "--namespace=default", "--clusterrole="+role, "--user="+name))
		DeferCleanup(func(ctx context.Context) {
			must(environment.Admin.Kubectl.Run(ctx, "", "delete", "rolebinding", binding, "--namespace=default"))
		})
	}
	return user
}

// runHelm runs bin/helm without the settings of the user who runs the tests.
func runHelm(ctx context.Context, as *testenv.Kubectl, arguments ...string) (string, error) {
	GinkgoHelper()
	root := must(testenv.ModuleRoot())
	command := exec.CommandContext(ctx, filepath.Join(root, "bin", "helm"), append(arguments, "--namespace=default")...)
	command.Env = append(os.Environ(), "KUBECONFIG="+as.Kubeconfig(),
		"HELM_CACHE_HOME=/nonexistent", "HELM_CONFIG_HOME=/nonexistent", "HELM_DATA_HOME=/nonexistent")
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm: %w: %s", err, output)
	}
	return string(output), nil
}

// chartOf writes a chart with the manifests as templates.
func chartOf(templates map[string]string) (path string) {
	GinkgoHelper()
	path = GinkgoT().TempDir()
	write(path, "Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n")
	Expect(os.Mkdir(filepath.Join(path, "templates"), 0o700)).To(Succeed())
	for name, text := range templates {
		write(filepath.Join(path, "templates"), name, text)
	}
	return path
}

// lockChart writes a chart with one Lock.
func lockChart(key string) (path, name string) {
	GinkgoHelper()
	manifest, name := folder(key, "  owner: pipeline\n  ttl: 1h\n")
	return chartOf(map[string]string{"lock.yaml": string(must(os.ReadFile(filepath.Join(manifest, "manifest.yaml"))))}), name
}

// helmModes are the flags of the ways in which Helm applies.
var helmModes = []TableEntry{
	Entry("on the server's side", "--server-side=true", "--force-conflicts"),
	Entry("on the client's side", "--server-side=false"),
}

var _ = Describe("Helm", Label("nightly"), func() {
	DescribeTable("takes, keeps and gives back a Lock of a chart,", func(ctx context.Context, mode ...string) {
		user := helmUser(ctx, pipeline)
		chart, name := lockChart("gitops:helm-own")
		upgrade := append([]string{"upgrade", "--install", "own", chart}, mode...)
		must(runHelm(ctx, user, upgrade...))
		before := get(ctx, name)
		Expect(before.Spec.Holder).To(Equal(pipeline))
		must(runHelm(ctx, user, upgrade...))
		after := get(ctx, name)
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.ExpireTime.Time).To(BeTemporally("==", before.Spec.ExpireTime.Time))
		must(runHelm(ctx, user, "uninstall", "own"))
		Expect(must(user.Run(ctx, "", "get", "locks", name, "--ignore-not-found", "--namespace=default"))).To(BeEmpty())
	}, helmModes)

	DescribeTable("is refused a Lock of another holder by name, and leaves the lock as it is,", func(ctx context.Context, mode ...string) {
		ours, theirs := helmUser(ctx, pipeline), helmUser(ctx, otherPipeline)
		chart, name := lockChart("gitops:helm-foreign")
		upgrade := append([]string{"upgrade", "--install", "foreign", chart}, mode...)
		refused := func(before string, arguments ...string) {
			GinkgoHelper()
			_, err := runHelm(ctx, ours, arguments...)
			Expect(err).To(MatchError(ContainSubstring(otherPipeline)))
			Expect(stored(ctx, name)).To(Equal(before))
		}

		By("upgrading a release whose lock has another holder by now")
		must(runHelm(ctx, ours, upgrade...))
		must(ours.Run(ctx, "", "delete", "lock", name, "--namespace=default"))
		must(theirs.Run(ctx, "", "create", "-f", filepath.Join(chart, "templates", "lock.yaml")))
		before := stored(ctx, name)
		Expect(before).NotTo(ContainSubstring("meta.helm.sh"))
		refused(before, upgrade...)

		By("installing a release that takes over what there is")
		refused(before, append([]string{"upgrade", "--install", "another", chart, "--take-ownership"}, mode...)...)

		By("removing the release, of which the lock is no part any more")
		must(runHelm(ctx, ours, "uninstall", "foreign"))
		Expect(stored(ctx, name)).To(Equal(before))
	}, helmModes)

	It("is refused a Lock of another holder by default, and leaves the lock as it is", func(ctx context.Context) {
		ours, theirs := helmUser(ctx, pipeline), helmUser(ctx, otherPipeline)
		chart, name := lockChart("gitops:helm-default")
		must(runHelm(ctx, ours, "upgrade", "--install", "helm-default", chart))
		must(ours.Run(ctx, "", "delete", "lock", name, "--namespace=default"))
		must(theirs.Run(ctx, "", "apply", "--server-side", "-f", filepath.Join(chart, "templates", "lock.yaml")))
		before := stored(ctx, name)
		for _, arguments := range [][]string{{"upgrade", "--install", "helm-default", chart}, {"install", "helm-default-other", chart, "--take-ownership"}} {
			_, err := runHelm(ctx, ours, arguments...)
			GinkgoWriter.Println(err)
			Expect(err).To(MatchError(ContainSubstring(name)))
			Expect(stored(ctx, name)).To(Equal(before))
		}
		must(runHelm(ctx, ours, "uninstall", "helm-default"))
		Expect(stored(ctx, name)).To(Equal(before))
	})

	It("waits for the hook of the sample, while it waits for its lock and while it runs", func(ctx context.Context) {
		user := helmUser(ctx, pipeline)
		sample := string(must(os.ReadFile(filepath.Join("..", "..", "config", "samples", "jobs", "helm_migration.yaml"))))
		endless := strings.Replace(sample, "  template:\n", "  template:\n    metadata: {annotations: {test.forrst.dev/run-for: forever}}\n", 1)
		Expect(endless).NotTo(Equal(sample))
		m := &migration{folder: "orders-migrate", namespace: "default", key: "database:orders"}
		chart := chartOf(map[string]string{
			"job.yaml": endless, "rollout.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + m.name() + "\n",
		})
		Expect(admin.Create(ctx, fixture.Manifest(m.namespace, m.key))).To(Succeed())
		DeferCleanup(testenv.RemoveLock, admin, m.namespace, m.lockName())

		ended := make(chan error, 1)
		go func() {
			defer GinkgoRecover()
			_, err := runHelm(ctx, user, "upgrade", "--install", "orders", chart)
			ended <- err
		}()
		Eventually(ctx, func(g Gomega) {
			job := m.job(ctx)
			g.Expect(job).NotTo(BeNil())
			g.Expect(job.Status.Conditions).To(ContainElement(HaveField("Type", batchv1.JobSuspended)))
		}).WithTimeout(timeout).Should(Succeed())
		waits := func() {
			GinkgoHelper()
			Consistently(func(g Gomega) {
				g.Expect(ended).NotTo(Receive())
				g.Expect(m.isRolledOut(ctx)).To(BeFalse())
			}).WithTimeout(2 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
		}
		waits()
		Expect(testenv.RemoveLock(ctx, admin, m.namespace, m.lockName())).To(Succeed())
		Eventually(ctx, func() *corev1.Pod { return m.runningPod(ctx) }).WithTimeout(timeout).ShouldNot(BeNil())
		waits()
		node.End(m.runningPod(ctx).UID)
		Eventually(ended).WithTimeout(timeout).Should(Receive(BeNil()))
		Expect(m.isRolledOut(ctx)).To(BeTrue())
		must(runHelm(ctx, user, "uninstall", "orders"))
	})
})
