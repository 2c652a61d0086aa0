package gitops_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// operatorRenewal is a spec of a lock that the operator renews every 20 s.
const operatorRenewal = "  owner: repository\n  ttl: 1m\n  renewalPolicy: Operator\n"

// declarer is a tool that takes a lock by a manifest.
type declarer struct {
	apply func(ctx context.Context)
	// isUnchanged fails where the tool sees a difference between the manifest and the lock.
	isUnchanged func(ctx context.Context)
	end         func(ctx context.Context)
	name        string
	taken       *v1alpha1.Lock
}

// declarers returns each tool with a manifest of its own.
func declarers(ctx context.Context) map[string]*declarer {
	GinkgoHelper()
	found := map[string]*declarer{}
	for index, way := range ways {
		path, name := folder(fmt.Sprintf("gitops:declared-%d", index), operatorRenewal)
		found[way.name] = &declarer{
			name:  name,
			apply: func(ctx context.Context) { must(way.apply(ctx, kubectl[flux], path)) },
			isUnchanged: func(ctx context.Context) {
				difference, err := way.diff(ctx, kubectl[flux], path)
				Expect(difference).To(BeEmpty())
				Expect(err).NotTo(HaveOccurred())
				must(way.apply(ctx, kubectl[flux], path))
			},
			end: func(ctx context.Context) { must(kubectl[flux].Run(ctx, "", "delete", "-k", path)) },
		}
	}
	path, name := folder("gitops:declared:flux", operatorRenewal)
	found["Flux"] = &declarer{
		name:        name,
		apply:       func(ctx context.Context) { Expect(applyWithFlux(ctx, path)).To(Succeed()) },
		isUnchanged: func(ctx context.Context) { Expect(kustomizationOf(path).reconcile(ctx)).To(Succeed()) },
		end:         func(ctx context.Context) { kustomizationOf(path).remove(ctx) },
	}
	argoFolder, argoName := application("gitops:declared:argo", operatorRenewal)
	synced := func(ctx context.Context, want string) {
		GinkgoHelper()
		Expect(syncOne(ctx, argoFolder).Messages).To(HaveKeyWithValue("Lock/"+argoName, HaveSuffix(want)))
	}
	found["Argo CD"] = &declarer{
		name:        argoName,
		apply:       func(ctx context.Context) { synced(ctx, "created") },
		isUnchanged: func(ctx context.Context) { synced(ctx, "unchanged") },
		end: func(ctx context.Context) {
			must(environment.Admin.Kubectl.Run(ctx, "", "delete", "lock", argoName, "--namespace=default"))
		},
	}
	user := helmUser(ctx, pipeline)
	helmManifest, helmName := folder("gitops:declared:helm", operatorRenewal)
	chart := chartOf(map[string]string{"lock.yaml": string(must(os.ReadFile(filepath.Join(helmManifest, "manifest.yaml"))))})
	upgrade := func(ctx context.Context) {
		must(runHelm(ctx, user, "upgrade", "--install", "declared", chart, "--server-side=true", "--force-conflicts"))
	}
	found["Helm"] = &declarer{
		name: helmName, apply: upgrade, isUnchanged: upgrade,
		end: func(ctx context.Context) { must(runHelm(ctx, user, "uninstall", "declared")) },
	}
	return found
}

// application writes a folder with nothing but a manifest of a Lock, which Argo CD syncs.
func application(key, rest string) (path, name string) {
	GinkgoHelper()
	manifest, name := folder(key, rest)
	path = GinkgoT().TempDir()
	write(path, "lock.yaml", string(must(os.ReadFile(filepath.Join(manifest, "manifest.yaml")))))
	return path, name
}

// allowOperatorRenewal lets the operator renew locks of the namespace default until the spec ends.
func allowOperatorRenewal(ctx context.Context) {
	GinkgoHelper()
	must(environment.Admin.Kubectl.Run(ctx, "", "annotate", "namespace", "default", v1alpha1.MaxOperatorRenewalAnnotation+"=720h"))
	DeferCleanup(func(ctx context.Context) {
		must(environment.Admin.Kubectl.Run(ctx, "", "annotate", "namespace", "default", v1alpha1.MaxOperatorRenewalAnnotation+"-"))
	})
}

var _ = Describe("A Lock that the operator renews", func() {
	It("stays held by one grant, shows no difference to any tool, and ends with its manifest", Label("nightly"), func(ctx context.Context) {
		allowOperatorRenewal(ctx)
		all := declarers(ctx)
		for title, d := range all {
			By(title)
			d.apply(ctx)
			d.taken = get(ctx, d.name)
		}
		for title, d := range all {
			Eventually(func() time.Time { return get(ctx, d.name).Spec.RenewTime.Time }).WithTimeout(timeout).WithPolling(200*time.Millisecond).
				Should(BeTemporally(">", d.taken.Spec.RenewTime.Time), title)
			renewed := get(ctx, d.name)
			// A third of the ttl, less the spread; more if the others took long to apply.
			Expect(renewed.Spec.RenewTime.Sub(d.taken.Spec.RenewTime.Time)).To(BeNumerically(">=", 18*time.Second), title)
			Expect(renewed.Spec.ExpireTime.Sub(renewed.Spec.RenewTime.Time)).To(Equal(time.Minute), title)
			Expect(renewed.FencingToken()).To(Equal(must(d.taken.FencingToken())), title)
			Expect(renewed.Spec.RenewalEndTime).To(Equal(d.taken.Spec.RenewalEndTime), title)
		}
		for title, d := range all {
			By(title + ", once it was renewed")
			before := get(ctx, d.name)
			shown := stored(ctx, d.name)
			d.isUnchanged(ctx)
			now := stored(ctx, d.name)
			after := get(ctx, d.name)
			if after.Spec.RenewTime.Equal(before.Spec.RenewTime) { // The next renewal may have come in between.
				Expect(now).To(Equal(shown))
			}
			Expect(after.Spec.AcquireTime).To(Equal(before.Spec.AcquireTime))
			d.end(ctx)
			Expect(client.IgnoreNotFound(admin.Get(ctx, client.ObjectKeyFromObject(after), after))).To(Succeed())
			theirs, _ := folder(after.Spec.Key, "  owner: theirs\n  ttl: 1h\n")
			must(kubectl[argo].Run(ctx, "", "create", "-k", theirs))
			Expect(must(get(ctx, d.name).FencingToken())).To(BeNumerically(">", must(before.FencingToken())))
		}
	})

	It("is refused with a sentence where the namespace does not allow it", Label("nightly"), func(ctx context.Context) {
		path, name := folder("gitops:undeclared", operatorRenewal)
		Expect(applyWithFlux(ctx, path)).To(MatchError(ContainSubstring("Operator is not allowed in this namespace")))
		err := admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Lock{})
		Expect(err).To(HaveOccurred())
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	})
})
