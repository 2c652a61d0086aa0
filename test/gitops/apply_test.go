package gitops_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// way is how manifests come from a folder with a kustomization to the API server.
type way struct {
	name  string
	apply func(ctx context.Context, as *testenv.Kubectl, folder string) (string, error)
	// diff fails where applying would change something.
	diff func(ctx context.Context, as *testenv.Kubectl, folder string) (string, error)
}

var ways = []way{
	{"kubectl apply -f", run("apply", "-f", "FOLDER/manifest.yaml"), run("diff", "-f", "FOLDER/manifest.yaml")},
	{"kubectl apply -k", run("apply", "-k", "FOLDER"), run("diff", "-k", "FOLDER")},
	{"kustomize build | kubectl apply -f -", piped("apply", "-f", "-"), piped("diff", "-f", "-")},
	{"kubectl apply --server-side", run("apply", "--server-side", "-k", "FOLDER"), run("diff", "--server-side", "-k", "FOLDER")},
	{
		"server-side apply as Flux does it",
		run("apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-k", "FOLDER"),
		run("diff", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-k", "FOLDER"),
	},
}

func run(arguments ...string) func(context.Context, *testenv.Kubectl, string) (string, error) {
	return func(ctx context.Context, as *testenv.Kubectl, folder string) (string, error) {
		return as.Run(ctx, "", strings.Split(strings.ReplaceAll(strings.Join(arguments, "\n"), "FOLDER", folder), "\n")...)
	}
}

func piped(arguments ...string) func(context.Context, *testenv.Kubectl, string) (string, error) {
	return func(ctx context.Context, as *testenv.Kubectl, folder string) (string, error) {
		built, err := as.Run(ctx, "", "kustomize", folder)
		if err != nil {
			return "", err
		}
		return as.Run(ctx, built, arguments...)
	}
}

// manifests are the specs that a repository may hold, next to key and name.
func manifests() map[string]string {
	end := time.Now().Add(30 * 24 * time.Hour)
	return map[string]string{
		"a ttl":                             "  owner: repository\n  ttl: 1h\n  reason: Monthly close\n",
		"a ttl in odd words":                "  owner: repository\n  ttl: 60m0.5s\n",
		"nothing but a key":                 "",
		"an end":                            "  owner: repository\n  expireTime: " + end.UTC().Format(time.RFC3339) + "\n",
		"an end, unquoted, in another zone": "  owner: repository\n  expireTime: " + end.In(time.FixedZone("", 5400)).Format(time.RFC3339Nano) + "\n",
		"a function":                        "  scope: Function\n  function: payments.charge\n  owner: repository\n  ttl: 30m\n",
	}
}

// folder writes a kustomization with one Lock.
func folder(key, rest string) (path, name string) {
	GinkgoHelper()
	spec := v1alpha1.LockSpec{Key: key}
	if strings.Contains(rest, "function:") {
		spec.Scope, spec.Function = v1alpha1.ScopeFunction, "payments.charge"
	}
	path, name = GinkgoT().TempDir(), spec.FullKey().ObjectName()
	manifest := "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: " + name + "\n  namespace: default\nspec:\n  key: " + key + "\n" + rest
	write(path, "manifest.yaml", manifest)
	write(path, "kustomization.yaml", "resources: [manifest.yaml]\n")
	DeferCleanup(testenv.RemoveLock, admin, "default", name)
	return path, name
}

func write(folder, name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600)).To(Succeed())
}

// stored is the whole object, managed fields included, as the API server shows it.
func stored(ctx context.Context, name string) string {
	GinkgoHelper()
	return must(kubectl[flux].Run(ctx, "", "get", "lock", name, "--namespace=default", "--output=yaml", "--show-managed-fields"))
}

// changed is the lock that a watch tells of.
func changed(change watch.Event) *v1alpha1.Lock {
	GinkgoHelper()
	lock, ok := change.Object.(*v1alpha1.Lock)
	Expect(ok).To(BeTrue(), "%v", change)
	return lock
}

func acquired(change watch.Event) time.Time { return changed(change).Spec.AcquireTime.Time }

var _ = Describe("A Lock in a repository", func() {
	for _, way := range ways {
		Describe("by "+way.name, func() {
			It("is acquired once; applying it again neither changes nor renews it, and shows no difference", func(ctx context.Context) {
				for title, rest := range manifests() {
					By(title)
					path, name := folder("gitops:again", rest)
					must(way.apply(ctx, kubectl[flux], path))
					before := stored(ctx, name)
					Expect(before).To(ContainSubstring("holder: " + flux))
					must(way.apply(ctx, kubectl[flux], path))
					Expect(stored(ctx, name)).To(Equal(before), title)
					difference, err := way.diff(ctx, kubectl[flux], path)
					Expect(err).NotTo(HaveOccurred(), title)
					Expect(difference).To(BeEmpty(), title)
					Expect(stored(ctx, name)).To(Equal(before), title)

					By("releasing it as a controller prunes it")
					must(kubectl[flux].Run(ctx, "", "delete", "lock", name, "--namespace=default"))
				}
			})

			It("is acquired anew once it has expired", func(ctx context.Context) {
				path, name := folder("gitops:expired", "  owner: repository\n  ttl: 1s\n")
				// Each of the two locks may be gone again before kubectl has ended.
				changes := fixture.Watch(ctx, environment.Admin.Client, &v1alpha1.LockList{},
					client.InNamespace("default"), client.MatchingFields{"metadata.name": name})
				var change watch.Event
				must(way.apply(ctx, kubectl[flux], path))
				Eventually(changes).WithTimeout(timeout).Should(Receive(&change))
				Expect(change.Type).To(Equal(watch.Added))
				first := changed(change)
				// Until the reaper has been there, a client-side apply finds nothing to do.
				Eventually(func(g Gomega, ctx context.Context) {
					_, err := way.apply(ctx, kubectl[flux], path)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(changes).To(Receive(&change, Not(WithTransform(acquired, BeTemporally("==", first.Spec.AcquireTime.Time)))))
				}).WithContext(ctx).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(Succeed())
				second := changed(change)
				Expect(second.Spec.AcquireTime.Time).To(BeTemporally(">=", first.Spec.ExpireTime.Time))
				Expect(second.Spec.Holder).To(Equal(flux))
				Expect(second.FencingToken()).To(BeNumerically(">", must(first.FencingToken())))
			})

			It("is refused with a sentence where another caller holds the key", func(ctx context.Context) {
				theirs, name := folder("gitops:foreign", "  owner: theirs\n  ttl: 1h\n")
				must(way.apply(ctx, kubectl[argo], theirs))
				before := stored(ctx, name)
				ours, _ := folder("gitops:foreign", "  owner: ours\n  ttl: 1h\n")
				_, err := way.apply(ctx, kubectl[flux], ours)
				Expect(err).To(MatchError(ContainSubstring(`gitops:foreign is held by "` + argo + `" until ` + get(ctx, name).Spec.ExpireTime.String() +
					`; only its holder may change it until it is released or has expired`)))
				Expect(stored(ctx, name)).To(Equal(before))
			})
		})
	}

	DescribeTable("is refused at once, without the advice to force it, where another caller holds the key, by",
		func(ctx context.Context, arguments ...string) {
			theirs, _ := folder("gitops:at-once", "  owner: theirs\n  ttl: 1h\n")
			must(kubectl[argo].Run(ctx, "", "apply", "-k", theirs))
			ours, _ := folder("gitops:at-once", "  owner: ours\n  ttl: 1h\n")
			_, err := kubectl[flux].Run(ctx, "", append(arguments, "-k", ours, "-v=6")...)
			Expect(err).To(MatchError(And(
				ContainSubstring("(Forbidden)"),
				ContainSubstring(`gitops:at-once is held by "`+argo+`" until `),
				Not(ContainSubstring("`--force-conflicts`")),
			)))
			// kubectl repeats a conflict, for seconds.
			Expect(strings.Count(err.Error(), `verb="PATCH"`)).To(Equal(1), err.Error())
		},
		Entry("apply", "apply"),
		Entry("apply --force, which would delete it", "apply", "--force"),
		Entry("server-side apply as Flux does it", "apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"),
	)

	DescribeTable("is refused under a name that its kustomization has changed, with the one that follows from the key",
		func(ctx context.Context, change, changed string, arguments ...string) {
			path, name := folder("gitops:prefixed", "  owner: repository\n  ttl: 1h\n")
			write(path, "kustomization.yaml", "resources: [manifest.yaml]\n"+change+"\n")
			_, err := kubectl[flux].Run(ctx, "", append(arguments, "-k", path)...)
			Expect(err).To(MatchError(ContainSubstring(`metadata.name: Invalid value: "` + changed + `": must be "` + name + `", the name that follows from the key`)))
			for _, each := range []string{name, changed} {
				Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: each}, &v1alpha1.Lock{}))).To(BeTrue(), each)
			}

			By("putting the prefix into the key, as docs/gitops.md says")
			path, name = folder("shop:gitops:prefixed", "  owner: repository\n  ttl: 1h\n")
			must(kubectl[flux].Run(ctx, "", append(arguments, "-k", path)...))
			Expect(get(ctx, name).Spec.Key).To(Equal("shop:gitops:prefixed"))
		},
		Entry("namePrefix", "namePrefix: shop-", "shop-gitops--prefixed", "apply"),
		Entry("nameSuffix", "nameSuffix: -shop", "gitops--prefixed-shop", "apply"),
		Entry("namePrefix, as Flux applies it", "namePrefix: shop-", "shop-gitops--prefixed",
			"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"),
	)

	It("is refused on creation if another holder came in between", func(ctx context.Context) {
		theirs, name := folder("gitops:created", "  owner: theirs\n  ttl: 1h\n")
		must(kubectl[argo].Run(ctx, "", "apply", "-k", theirs))
		ours, _ := folder("gitops:created", "  owner: ours\n  ttl: 1h\n")
		_, err := kubectl[flux].Run(ctx, "", "create", "-k", ours)
		Expect(err).To(MatchError(ContainSubstring(`gitops:created is held by "` + argo + `" until ` + get(ctx, name).Spec.ExpireTime.String() +
			`; create it again when it is released or has expired`)))
	})

	It("is renewed by a change of its ttl, and only then", func(ctx context.Context) {
		path, name := folder("gitops:renewed", "  owner: repository\n  ttl: 1h\n")
		must(kubectl[flux].Run(ctx, "", "apply", "-k", path))
		first := get(ctx, name)
		for _, ttl := range []string{"2h", "1h"} {
			longer, _ := folder("gitops:renewed", "  owner: repository\n  ttl: "+ttl+"\n")
			must(kubectl[flux].Run(ctx, "", "apply", "-k", longer))
			renewed := get(ctx, name)
			Expect(renewed.Spec.AcquireTime.Time).To(BeTemporally("==", first.Spec.AcquireTime.Time))
			Expect(renewed.Spec.ExpireTime.Time).To(BeTemporally("==", renewed.Spec.RenewTime.Add(renewed.Spec.TTL.Duration)))
			Expect(renewed.Spec.RenewTime.Time).To(BeTemporally(">", first.Spec.RenewTime.Time))
		}
	})

	It("is released when it is pruned, by its holder, in the background and the foreground", func(ctx context.Context) {
		for _, cascade := range []string{"--cascade=background", "--cascade=foreground"} {
			path, name := folder("gitops:pruned", "  owner: repository\n  ttl: 1h\n")
			must(kubectl[argo].Run(ctx, "", "apply", "-k", path))
			must(kubectl[argo].Run(ctx, "", "delete", "lock", name, "--namespace=default", cascade, "--timeout=60s"))
			theirs, _ := folder("gitops:pruned", "  owner: theirs\n  ttl: 1h\n")
			must(kubectl[flux].Run(ctx, "", "apply", "-k", theirs))
			must(kubectl[flux].Run(ctx, "", "delete", "-k", theirs))
		}
	})

	It("cannot be a hook of Argo CD, which has a finalizer", func(ctx context.Context) {
		path, _ := folder("gitops:hook", "  ttl: 1h\n")
		write(path, "kustomization.yaml", "resources: [manifest.yaml]\npatches:\n- patch: |-\n    "+
			`[{"op": "add", "path": "/metadata/finalizers", "value": ["argocd.argoproj.io/hook-finalizer"]}]`+"\n  target: {kind: Lock}\n")
		_, err := kubectl[argo].Run(ctx, "", "apply", "-k", path)
		Expect(err).To(MatchError(ContainSubstring("metadata.finalizers")))
	})
})
