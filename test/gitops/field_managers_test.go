package gitops_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// The service writes locks that repositories own: it renews them for their holder, and grants them to
// the next one.
var _ = Describe("A Lock in a repository that the service writes", func() {
	var operator client.Client

	BeforeEach(func() { operator = environment.Operator().Client })

	for _, way := range ways {
		It("stays the repository's when it is renewed, with "+way.name, func(ctx context.Context) {
			const rest = "  owner: repository\n  ttl: 1h\n"
			path, name := folder("gitops:renewed-by-service", rest+"  reason: Monthly close\n")
			must(way.apply(ctx, kubectl[flux], path))
			for range 2 {
				renewed := must(rules.Renew(get(ctx, name), rules.Proof{Owner: "repository"}, 0, time.Now()))
				Expect(operator.Update(ctx, renewed)).To(Succeed())
			}
			before := stored(ctx, name)
			Expect(before).To(ContainSubstring("managedFields:"))

			must(way.apply(ctx, kubectl[flux], path))
			Expect(stored(ctx, name)).To(Equal(before), "the same manifest, applied again")
			Expect(must(way.diff(ctx, kubectl[flux], path))).To(BeEmpty())

			write(path, "manifest.yaml", "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: "+name+
				"\n  namespace: default\nspec:\n  key: gitops:renewed-by-service\n"+rest)
			must(way.apply(ctx, kubectl[flux], path))
			Expect(get(ctx, name).Spec.Reason).To(BeEmpty(), "what the manifest no longer says")
			Expect(get(ctx, name).Spec.Holder).To(Equal(flux))
		})
	}

	It("has no field managers under the next holder, and some again once it is applied", func(ctx context.Context) {
		flux := kubectl[flux]
		path, name := folder("gitops:handed-on", "  owner: repository\n  ttl: 1h\n  reason: Monthly close\n")
		apply := func(ctx context.Context, arguments ...string) error {
			_, err := flux.Run(ctx, "", append([]string{"apply", "--server-side", "--field-manager=kustomize-controller", "-k", path}, arguments...)...)
			return err
		}
		Expect(apply(ctx)).To(Succeed())
		request := rules.Acquisition{Key: "gitops:handed-on", Owner: "theirs", Holder: "them", TTL: time.Hour}
		Expect(operator.Update(ctx, rules.HandOff(get(ctx, name), request, rules.DefaultLimits(), time.Now()))).To(Succeed())
		Expect(stored(ctx, name)).NotTo(ContainSubstring("managedFields:"))
		renewed := must(rules.Renew(get(ctx, name), rules.Proof{Owner: "theirs"}, 0, time.Now()))
		Expect(operator.Update(ctx, renewed)).To(Succeed())
		Expect(stored(ctx, name)).NotTo(ContainSubstring("managedFields:"))

		By("refusing the former holder, whose manifest is applied again")
		Expect(apply(ctx)).To(MatchError(ContainSubstring(`with "before-first-apply"`)))
		Expect(apply(ctx, "--force-conflicts")).To(MatchError(ContainSubstring(`gitops:handed-on is held by "them" until `)))

		By("granting it the lock after that")
		Expect(operator.Delete(ctx, &v1alpha1.Lock{ObjectMeta: get(ctx, name).ObjectMeta})).To(Succeed())
		Expect(apply(ctx)).To(Succeed())
		Expect(stored(ctx, name)).To(ContainSubstring("operation: Apply"))
	})
})
