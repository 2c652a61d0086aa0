package gitops_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// These specs are the traps of docs/gitops.md. A spec that fails since a tool has become better is good news for
// that page.
var _ = Describe("A user of manifests", func() {
	It("is not protected by a Lock in a chart: Helm applies the rest of the chart first", Label("nightly"), func(ctx context.Context) {
		user := helmUser(ctx, pipeline)
		lock, name := application("gitops:in-a-chart", "  owner: pipeline\n  ttl: 1h\n")
		held := fixture.Manifest("default", "gitops:in-a-chart")
		Expect(admin.Create(ctx, held)).To(Succeed())
		chart := chartOf(map[string]string{
			"lock.yaml":  string(must(os.ReadFile(filepath.Join(lock, "lock.yaml")))),
			"other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied-before-the-lock\n",
		})
		_, err := runHelm(ctx, user, "upgrade", "--install", "in-a-chart", chart, "--server-side=true", "--force-conflicts", "--take-ownership")
		Expect(err).To(MatchError(ContainSubstring(`is held by "admin"`)))
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "applied-before-the-lock"}}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(admin.Delete(ctx, other)).To(Succeed())
		Expect(get(ctx, name).Spec.Holder).To(Equal("admin"))
	})

	It("is another holder after a change of the service account, which may neither change nor delete the lock", Label("nightly"), func(ctx context.Context) {
		path, name := folder("gitops:account", "  owner: repository\n  ttl: 1h\n")
		Expect(applyWithFlux(ctx, path)).To(Succeed())
		before := stored(ctx, name)
		createDeployer(ctx)
		Expect(applyWithFlux(ctx, path, withDeployer)).To(MatchError(ContainSubstring(`is held by "` + flux + `"`)))
		k := kustomizationOf(path)
		Expect(admin.Delete(ctx, k.object())).To(Succeed())
		Eventually(ctx, func() (string, error) {
			return environment.Admin.Kubectl.Run(ctx, "", "get", "events", "--namespace="+fluxNamespace, "--field-selector=involvedObject.name="+string(k))
		}).WithTimeout(timeout).Should(ContainSubstring("pruning for deleted resource failed"))
		Expect(stored(ctx, name)).To(Equal(before))

		By("after an administrator has released it")
		Expect(testenv.RemoveLock(ctx, admin, "default", name)).To(Succeed())
		k.remove(ctx)
		Expect(applyWithFlux(ctx, path, withDeployer)).To(Succeed())
		Expect(get(ctx, name).Spec.Holder).To(Equal("system:serviceaccount:flux-system:shop-deployer"))
	})

	It("is told that IfNotPresent is ready, while another holder has the lock", Label("nightly"), func(ctx context.Context) {
		path, name := folder("gitops:if-not-present", "  owner: repository\n  ttl: 1h\n")
		text := string(must(os.ReadFile(filepath.Join(path, "manifest.yaml"))))
		write(path, "manifest.yaml", strings.Replace(text, "metadata:\n", "metadata:\n  annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}\n", 1))
		theirs, _ := folder("gitops:if-not-present", "  owner: theirs\n  ttl: 1h\n")
		must(kubectl[argo].Run(ctx, "", "apply", "-k", theirs))
		before := stored(ctx, name)
		Expect(applyWithFlux(ctx, path, withWaiting)).To(Succeed())
		Expect(stored(ctx, name)).To(Equal(before))
	})

	It("is refused an invalid edit of a held lock with 400, and the reason", func(ctx context.Context) {
		path, name := folder("gitops:edited", "  owner: repository\n  ttl: 1h\n")
		must(kubectl[flux].Run(ctx, "", "apply", "-k", path))
		before := stored(ctx, name)
		_, err := kubectl[flux].Run(ctx, "", "patch", "lock", name, "--namespace=default", "--type=merge", `--patch={"spec":{"ttl":"48h"}}`)
		// After 422 kubectl edit would open the file again; after 400 it keeps a copy of it and says where.
		Expect(err).To(MatchError(And(ContainSubstring("(BadRequest)"), ContainSubstring("spec.ttl"))))
		Expect(stored(ctx, name)).To(Equal(before))
	})
})

var _ = Describe("The samples", func() {
	It("run to their end with Argo CD's engine", Label("nightly"), func(ctx context.Context) {
		m := &migration{folder: filepath.Join(GinkgoT().TempDir(), "orders-migrate-sync"), namespace: "default", key: "database:orders"}
		Expect(os.Mkdir(m.folder, 0o700)).To(Succeed())
		sample := must(os.ReadFile(filepath.Join("..", "..", "config", "samples", "jobs", "argocd_migration.yaml")))
		write(m.folder, "job.yaml", string(sample))
		write(m.folder, "rollout.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "+m.name()+"\n")
		outcome := syncOne(ctx, m.folder)
		Expect(outcome.Phase).To(Equal("Succeeded"), "%+v", outcome)
		Expect(outcome.Phases).To(HaveKeyWithValue("Job/"+m.name(), "Succeeded"))
		Expect(m.isRolledOut(ctx)).To(BeTrue())
		Eventually(ctx, func() any { return m.job(ctx) }).WithTimeout(timeout).Should(BeNil(), "the hook stays")
	})

	It("run to their end with Flux", Label("nightly"), func(ctx context.Context) {
		c := fluxController(ctx)
		createDeployer(ctx)
		text := string(must(os.ReadFile(filepath.Join("..", "..", "config", "samples", "jobs", "job.yaml"))))
		k, root := kustomization("shop-migration"), GinkgoT().TempDir()
		Expect(os.Mkdir(filepath.Join(root, string(k)), 0o700)).To(Succeed())
		write(filepath.Join(root, string(k)), "job.yaml", strings.Replace(text, "metadata:\n", "metadata:\n  namespace: default\n", 1))
		repository, revision := c.source("shop", root)
		DeferCleanup(k.remove)
		writeObjects(ctx, repository, k.sample(bySample))
		Expect(k.outcome(ctx, func(status *kustomizationStatus) bool { return status.LastAppliedRevision == revision })).To(Succeed())
		job := (&migration{folder: "billing-report", namespace: "default"}).job(ctx)
		Expect(job.Status.Succeeded).To(BeEquivalentTo(1))
	})

	It("hold a lock that the operator renews, in a namespace that allows it", func(ctx context.Context) {
		folder := filepath.Join("..", "..", "config", "samples", "renewal")
		must(environment.Admin.Kubectl.Run(ctx, "", "apply", "-k", folder))
		renewed := must(environment.Admin.Kubectl.Run(ctx, "", "get", "lock", "database--shop", "--namespace=shop", "--output=jsonpath={.spec.renewalEndTime}"))
		Expect(renewed).NotTo(BeEmpty())
		must(environment.Admin.Kubectl.Run(ctx, "", "delete", "lock", "database--shop", "--namespace=shop"))
	})
})
