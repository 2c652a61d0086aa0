package gitops_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var _ = Describe("Flux", func() {
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
		c := fluxController(ctx)
		createDeployer(ctx)
		root := GinkgoT().TempDir()
		bySample := newDependency(root, "migration", func(map[string]any) {})
		withoutExpressions := newDependency(root, "without-expressions", func(spec map[string]any) { delete(spec, "healthCheckExprs") })
		withoutAccount := newDependency(root, "without-account", func(spec map[string]any) { delete(spec, "serviceAccountName") })
		all := []*dependency{bySample, withoutExpressions, withoutAccount}
		repository, _ := c.source("shop", root)
		objects := []*unstructured.Unstructured{repository}
		for _, d := range all {
			objects = append(objects, d.objects...)
			Expect(admin.Create(ctx, fixture.Manifest(d.namespace, d.key))).To(Succeed())
			DeferCleanup(testenv.RemoveLock, admin, d.namespace, d.lockName())
			DeferCleanup(d.before.remove)
			DeferCleanup(d.after.remove)
		}
		writeObjects(ctx, objects...)
		waits := func(g Gomega, message string) {
			GinkgoHelper()
			before, after := bySample.before.status(ctx), bySample.after.ready(ctx)
			g.Expect(before.condition("Ready").Status).To(Equal(metav1.ConditionUnknown), message)
			g.Expect(before.condition("Reconciling").Message).To(ContainSubstring("Running health checks"), message)
			g.Expect(after.Reason).To(Equal("DependencyNotReady"), message)
			g.Expect(bySample.isRolledOut(ctx)).To(BeFalse(), message)
		}

		By("waiting for the lock")
		for _, trap := range all[1:] {
			Eventually(ctx, trap.isRolledOut).WithTimeout(timeout).Should(BeTrue())
			Expect(trap.before.ready(ctx).Status).To(Equal(metav1.ConditionTrue))
			Expect(trap.job(ctx).Spec.Suspend).To(HaveValue(BeTrue()), "what depends on the Job was applied, while the Job waits")
		}
		Eventually(ctx, func(g Gomega) { waits(g, "before the Job runs") }).WithTimeout(timeout).Should(Succeed())
		Consistently(ctx, func(g Gomega) { waits(g, "before the Job runs") }).WithTimeout(healthPolls).WithPolling(300 * time.Millisecond).Should(Succeed())
		Expect(bySample.job(ctx).Spec.Suspend).To(HaveValue(BeTrue()))

		By("running")
		Expect(testenv.RemoveLock(ctx, admin, bySample.namespace, bySample.lockName())).To(Succeed())
		Eventually(ctx, func() *corev1.Pod { return bySample.runningPod(ctx) }).WithTimeout(timeout).ShouldNot(BeNil())
		Consistently(ctx, func(g Gomega) { waits(g, "while the Job runs") }).WithTimeout(healthPolls).WithPolling(300 * time.Millisecond).Should(Succeed())

		By("complete")
		node.End(bySample.runningPod(ctx).UID)
		Eventually(ctx, bySample.isRolledOut).WithTimeout(timeout).Should(BeTrue())
		Expect(bySample.before.ready(ctx).Status).To(Equal(metav1.ConditionTrue))
		complete := bySample.job(ctx)
		Expect(complete.Status.Conditions).To(ContainElement(And(HaveField("Type", batchv1.JobComplete), HaveField("Status", corev1.ConditionTrue))))
		Expect(bySample.before.reconcile(ctx)).To(Succeed())
		Expect(bySample.job(ctx).ResourceVersion).To(Equal(complete.ResourceVersion), "a later reconciliation changes the Job")
	})
})

// dependency is an application whose Job is applied by one Kustomization, and whose next step by another that depends on
// it.
type dependency struct {
	*migration

	before, after kustomization
	// objects are the two.
	objects []*unstructured.Unstructured
}

// newDependency writes the manifests into folders of the root. Before is config/samples/flux/migration.yaml, with a
// change.
func newDependency(root, name string, change func(spec map[string]any)) *dependency {
	GinkgoHelper()
	d := &dependency{migration: migrations(1, "")[0], before: kustomization(name), after: kustomization(name + "-app")}
	for _, file := range []string{"job.yaml", "rollout.yaml"} {
		step := filepath.Join(root, name, strings.TrimSuffix(file, ".yaml"))
		Expect(os.MkdirAll(step, 0o700)).To(Succeed())
		write(step, file, string(must(os.ReadFile(filepath.Join(d.folder, file)))))
	}
	before, after := d.before.sample(func(spec map[string]any) {
		spec["path"] = "./" + name + "/job"
		change(spec)
	}), d.after.object()
	after.Object["spec"] = map[string]any{
		"interval": "1h", "prune": true, "path": "./" + name + "/rollout", "dependsOn": []any{map[string]any{"name": name}},
		"sourceRef": map[string]any{"kind": "GitRepository", "name": "shop"},
	}
	d.objects = []*unstructured.Unstructured{before, after}
	return d
}

// sample is config/samples/flux/migration.yaml under this name, with a change. Its source is the GitRepository shop.
func (k kustomization) sample(change func(spec map[string]any)) *unstructured.Unstructured {
	GinkgoHelper()
	sample := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(must(os.ReadFile(filepath.Join("..", "..", "config", "samples", "flux", "migration.yaml"))), &sample.Object)).To(Succeed())
	sample.SetName(string(k))
	spec, _, err := unstructured.NestedMap(sample.Object, "spec")
	Expect(err).NotTo(HaveOccurred())
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
	var present v1alpha1.LockList
	Expect(admin.List(ctx, &present, client.InNamespace("default"))).To(Succeed())
	watcher := must(environment.Admin.Client.Watch(ctx, &v1alpha1.LockList{}, client.InNamespace("default"),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: present.ResourceVersion}}))
	DeferCleanup(watcher.Stop)
	var mu sync.Mutex
	events := map[string][]watch.EventType{}
	go func() {
		for event := range watcher.ResultChan() {
			lock, isLock := event.Object.(*v1alpha1.Lock)
			if !isLock {
				continue
			}
			mu.Lock()
			events[lock.Name] = append(events[lock.Name], event.Type)
			mu.Unlock()
		}
	}()
	return func(name string) []watch.EventType {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(events[name])
	}
}
