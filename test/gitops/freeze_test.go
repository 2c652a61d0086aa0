package gitops_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A freeze", func() {
	const name = "deploy--shop"

	// overlay is a kustomization of the sample with another end.
	overlay := func(end string) string {
		GinkgoHelper()
		path := GinkgoT().TempDir()
		write(path, "manifest.yaml", must(kubectl[flux].Run(context.Background(), "", "kustomize", "../../config/samples/freeze")))
		write(path, "kustomization.yaml", `
namespace: default
resources: [manifest.yaml]
patches:
- patch: |-
    apiVersion: forrst.dev/v1alpha1
    kind: Lock
    metadata: {name: `+name+`}
    spec: {expireTime: "`+end+`"}
`)
		return path
	}

	It("lasts until its date, whatever is applied, and may be moved by its holder", func(ctx context.Context) {
		const format = "2006-01-02T15:04:05Z"
		end := time.Now().UTC().Add(200 * 24 * time.Hour).Truncate(time.Second)
		freeze := overlay(end.Format(format))
		must(kubectl[flux].Run(ctx, "", "apply", "-k", freeze))
		DeferCleanup(func(ctx context.Context) {
			must(kubectl[flux].Run(ctx, "", "delete", "-k", freeze, "--ignore-not-found"))
		})
		Expect(get(ctx, name).Spec.ExpireTime.Time).To(BeTemporally("==", end))
		Expect(get(ctx, name).Spec.TTL).To(BeNil())
		before := stored(ctx, name)
		must(kubectl[flux].Run(ctx, "", "apply", "-k", freeze))
		Expect(stored(ctx, name)).To(Equal(before))
		Expect(must(kubectl[flux].Run(ctx, "", "diff", "-k", freeze))).To(BeEmpty())

		By("keeping a deployment's lock out")
		deployment, _ := folder("deploy:shop", "  owner: deployment\n  ttl: 10m\n")
		_, err := kubectl[argo].Run(ctx, "", "apply", "-k", deployment)
		Expect(err).To(MatchError(ContainSubstring(`deploy:shop is held by "` + flux + `" until ` + end.Format("2006-01-02T15:04:05.000000Z"))))

		By("moving the end")
		sooner := end.Add(-24 * time.Hour)
		must(kubectl[flux].Run(ctx, "", "apply", "-k", overlay(sooner.Format(format))))
		Expect(get(ctx, name).Spec.ExpireTime.Time).To(BeTemporally("==", sooner))

		By("ending it")
		must(kubectl[flux].Run(ctx, "", "delete", "-k", freeze))
		must(kubectl[argo].Run(ctx, "", "apply", "-k", deployment))
	})

	It("is refused when its date has passed or is years away", func(ctx context.Context) {
		for _, end := range []string{"2020-01-01T00:00:00Z", "2200-01-01T00:00:00Z"} {
			_, err := kubectl[flux].Run(ctx, "", "apply", "-k", overlay(end))
			Expect(err).To(MatchError(And(ContainSubstring("spec.expireTime"), ContainSubstring("must be in the future and at most 366 days ahead"))))
		}
	})
})
