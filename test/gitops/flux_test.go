package gitops_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// healthPolls is longer than the time between two of kustomize-controller's looks at the health of what it has applied.
const healthPolls = 6 * time.Second

var _ = Describe("Flux", Label("nightly"), func() {
	It("acquires a lock by one write, and finds it unchanged afterwards", func(ctx context.Context) {
		all, names := GinkgoT().TempDir(), map[string]string{}
		for index, title := range slices.Sorted(maps.Keys(manifests())) {
			path, name := folder(fmt.Sprintf("gitops:flux:%d", index), manifests()[title])
			write(all, fmt.Sprintf("%d.yaml", index), string(must(os.ReadFile(filepath.Join(path, "manifest.yaml")))))
			names[name] = title
		}
		writes := watchLocks(ctx)
		Expect(applyWithFlux(ctx, all, withWaiting)).To(Succeed())
		before := map[string]string{}
		for name, title := range names {
			before[name] = stored(ctx, name)
			Expect(get(ctx, name).Spec.Holder).To(Equal(flux), title)
			Expect(get(ctx, name).Spec.FencingToken).To(BeNil(), "a second write records the token")
		}
		k := kustomizationOf(all)
		for range 2 {
			Expect(k.reconcile(ctx)).To(Succeed())
			for name, title := range names {
				Expect(stored(ctx, name)).To(Equal(before[name]), title)
			}
		}

		By("pruning them")
		k.remove(ctx)
		for name, title := range names {
			Eventually(writes).WithArguments(name).WithTimeout(timeout).Should(ContainElement(watch.Deleted), title)
			Expect(writes(name)).To(Equal([]watch.EventType{watch.Added, watch.Deleted}), title)
		}
	})

	It("says who holds the key, and acquires the lock when it is free", func(ctx context.Context) {
		path, name := folder("gitops:flux:held", "  owner: repository\n  ttl: 1h\n")
		Expect(admin.Create(ctx, fixture.Manifest("default", "gitops:flux:held"))).To(Succeed())
		before := stored(ctx, name)
		Expect(applyWithFlux(ctx, path, withRetries)).To(MatchError(ContainSubstring(`gitops:flux:held is held by "admin" until`)))
		Expect(stored(ctx, name)).To(Equal(before))
		Expect(testenv.RemoveLock(ctx, admin, "default", name)).To(Succeed())
		Eventually(ctx, kustomizationOf(path).ready).WithTimeout(timeout).Should(HaveField("Status", metav1.ConditionTrue))
		Expect(get(ctx, name).Spec.Holder).To(Equal(flux))
	})

	It("applies nothing of a Kustomization with a freeze whose end is over", func(ctx context.Context) {
		path, _ := folder("gitops:over", "  owner: repository\n  expireTime: 2020-01-01T00:00:00Z\n")
		lock := must(os.ReadFile(filepath.Join(path, "manifest.yaml")))
		write(path, "manifest.yaml", string(lock)+"---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: beside-a-freeze\n  namespace: default\n")
		Expect(applyWithFlux(ctx, path)).To(MatchError(ContainSubstring("must be in the future")))
		err := admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "beside-a-freeze"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	})

	It("starts what depends on a Job under a lock when the Job is complete, by the expressions of the sample and a service account", func(ctx context.Context) {
		createDeployer(ctx)
		sample := newDependency("migration", "", bySample)
		traps := []*dependency{newDependency("without-expressions", "", withoutExpressions), newDependency("without-account", "", withoutAccount)}
		applyWithHeldKeys(ctx, append(traps, sample)...)
		waits := func(g Gomega, message string) {
			GinkgoHelper()
			before, after := sample.before.status(ctx), sample.after.ready(ctx)
			g.Expect(before.condition("Ready").Status).To(Equal(metav1.ConditionUnknown), message)
			g.Expect(before.condition("Reconciling").Message).To(ContainSubstring("Running health checks"), message)
			g.Expect(after.Reason).To(Equal("DependencyNotReady"), message)
			g.Expect(sample.isRolledOut(ctx)).To(BeFalse(), message)
		}

		By("waiting for the lock")
		for _, trap := range traps {
			Eventually(ctx, trap.isRolledOut).WithTimeout(timeout).Should(BeTrue())
			Expect(trap.before.ready(ctx).Status).To(Equal(metav1.ConditionTrue))
			Expect(trap.job(ctx).Spec.Suspend).To(HaveValue(BeTrue()), "what depends on the Job was applied, while the Job waits")
		}
		Eventually(ctx, func(g Gomega) { waits(g, "before the Job runs") }).WithTimeout(timeout).Should(Succeed())
		Consistently(ctx, func(g Gomega) { waits(g, "before the Job runs") }).WithTimeout(healthPolls).WithPolling(300 * time.Millisecond).Should(Succeed())
		Expect(sample.job(ctx).Spec.Suspend).To(HaveValue(BeTrue()))

		By("running")
		Expect(testenv.RemoveLock(ctx, admin, sample.namespace, sample.lockName())).To(Succeed())
		Eventually(ctx, func() *corev1.Pod { return sample.runningPod(ctx) }).WithTimeout(timeout).ShouldNot(BeNil())
		Consistently(ctx, func(g Gomega) { waits(g, "while the Job runs") }).WithTimeout(healthPolls).WithPolling(300 * time.Millisecond).Should(Succeed())

		By("complete")
		node.End(sample.runningPod(ctx).UID)
		Eventually(ctx, sample.isRolledOut).WithTimeout(timeout).Should(BeTrue())
		Expect(sample.before.ready(ctx).Status).To(Equal(metav1.ConditionTrue))
		complete := sample.job(ctx)
		Expect(complete.Status.Conditions).To(ContainElement(And(HaveField("Type", batchv1.JobComplete), HaveField("Status", corev1.ConditionTrue))))
		Expect(sample.before.reconcile(ctx)).To(Succeed())
		Expect(sample.job(ctx).ResourceVersion).To(Equal(complete.ResourceVersion), "a later reconciliation changes the Job")
	})

	It("ends with a Job that is not run, by the expressions of the sample and a service account", func(ctx context.Context) {
		createDeployer(ctx)
		skipped := newDependency("skipped", "    forrst.dev/lock-policy: skip\n", bySample)
		failed := newDependency("failed", "    forrst.dev/lock-policy: fail\n", bySample)
		timedOut := newDependency("timed-out", "    forrst.dev/lock-wait-timeout: 1s\n", bySample)
		trap := newDependency("without-expressions", "    forrst.dev/lock-policy: fail\n", withoutExpressions)
		applyWithHeldKeys(ctx, skipped, failed, timedOut, trap)
		for _, d := range []*dependency{failed, timedOut} {
			Eventually(ctx, d.before.ready).WithTimeout(timeout).Should(And(
				HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring(d.name()+" status: 'Failed'"))))
		}
		for _, d := range []*dependency{skipped, trap} {
			Eventually(ctx, d.isRolledOut).WithTimeout(timeout).Should(BeTrue())
		}
		for _, d := range []*dependency{failed, timedOut} {
			Expect(d.after.ready(ctx).Reason).To(Equal("DependencyNotReady"))
			Expect(d.isRolledOut(ctx)).To(BeFalse())
		}
	})
})

// Changes of the spec of config/samples/flux/migration.yaml.
func bySample(map[string]any)                {}
func withoutExpressions(spec map[string]any) { delete(spec, "healthCheckExprs") }
func withoutAccount(spec map[string]any)     { delete(spec, "serviceAccountName") }

// dependency is an application whose Job is applied by one Kustomization, and whose next step by another that depends on
// it.
type dependency struct {
	*migration

	// before is config/samples/flux/migration.yaml, with a change.
	before, after kustomization
	change        func(spec map[string]any)
}

// newDependency returns the Kustomizations name and name-app. More are annotations of the Job.
func newDependency(name, more string, change func(spec map[string]any)) *dependency {
	GinkgoHelper()
	return &dependency{migration: migrations(1, more)[0], before: kustomization(name), after: kustomization(name + "-app"), change: change}
}

// applyWithHeldKeys writes the Kustomizations, with a source for all. The keys of the Jobs are held before.
func applyWithHeldKeys(ctx context.Context, all ...*dependency) {
	GinkgoHelper()
	root := GinkgoT().TempDir()
	objects := []*unstructured.Unstructured{nil}
	for _, d := range all {
		Expect(admin.Create(ctx, fixture.Manifest(d.namespace, d.key))).To(Succeed())
		DeferCleanup(testenv.RemoveLock, admin, d.namespace, d.lockName())
		for k, file := range map[kustomization]string{d.before: "job.yaml", d.after: "rollout.yaml"} {
			Expect(os.Mkdir(filepath.Join(root, string(k)), 0o700)).To(Succeed())
			write(filepath.Join(root, string(k)), file, string(must(os.ReadFile(filepath.Join(d.folder, file)))))
			DeferCleanup(k.remove)
		}
		before, after := d.before.sample(d.change), d.after.object()
		after.Object["spec"] = map[string]any{
			"interval": "1h", "prune": true, "path": "./" + string(d.after), "dependsOn": []any{map[string]any{"name": string(d.before)}},
			"sourceRef": map[string]any{"kind": "GitRepository", "name": "shop"},
		}
		objects = append(objects, before, after)
	}
	objects[0], _ = fluxController(ctx).source("shop", root)
	writeObjects(ctx, objects...)
}

// sample is config/samples/flux/migration.yaml under this name, which is also its path, with a change. Its source is the
// GitRepository shop.
func (k kustomization) sample(change func(spec map[string]any)) *unstructured.Unstructured {
	GinkgoHelper()
	sample := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(must(os.ReadFile(filepath.Join("..", "..", "config", "samples", "flux", "migration.yaml"))), &sample.Object)).To(Succeed())
	sample.SetName(string(k))
	spec, _, err := unstructured.NestedMap(sample.Object, "spec")
	Expect(err).NotTo(HaveOccurred())
	spec["path"] = "./" + string(k)
	change(spec)
	sample.Object["spec"] = spec
	return sample
}

// createDeployer creates the service account shop-deployer of the sample, which may do everything in the namespace
// default, until the spec ends.
func createDeployer(ctx context.Context) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "shop-deployer"}}
	Expect(admin.Create(ctx, account)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, account)).To(Succeed()) })
	must(environment.Admin.Kubectl.Run(ctx, "", "create", "rolebinding", account.Name, "--namespace=default", "--clusterrole=cluster-admin",
		"--serviceaccount="+account.Namespace+":"+account.Name))
	DeferCleanup(func(ctx context.Context) {
		must(environment.Admin.Kubectl.Run(ctx, "", "delete", "rolebinding", account.Name, "--namespace=default"))
	})
}

// watchLocks notes all events of Locks, from now until the spec ends. It returns a function that returns those of one.
func watchLocks(ctx context.Context) func(name string) []watch.EventType {
	GinkgoHelper()
	changes := fixture.Watch(ctx, environment.Admin.Client, &v1alpha1.LockList{}, client.InNamespace("default"))
	var mu sync.Mutex
	events := map[string][]watch.EventType{}
	go func() {
		for change := range changes {
			if lock, isLock := change.Object.(*v1alpha1.Lock); isLock {
				mu.Lock()
				events[lock.Name] = append(events[lock.Name], change.Type)
				mu.Unlock()
			}
		}
	}()
	return func(name string) []watch.EventType {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(events[name])
	}
}
