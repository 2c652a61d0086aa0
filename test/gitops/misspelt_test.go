package gitops_test

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// applying applies the file lock.yaml of a folder.
type applying func(ctx context.Context, folder string) error

func withKubectl(flags ...string) applying {
	return func(ctx context.Context, folder string) error {
		_, err := environment.Admin.Kubectl.Run(ctx, "", append(append([]string{"apply"}, flags...), "-f", filepath.Join(folder, "lock.yaml"))...)
		return err
	}
}

func withFlux(changes ...func(spec map[string]any)) applying {
	return func(ctx context.Context, folder string) error { return applyWithFlux(ctx, folder, changes...) }
}

// The table of docs/gitops.md. A spec that fails since a tool has become better is good news for that page.
var _ = DescribeTable("A manifest of a held Lock with a field that there is not, applied by",
	func(ctx context.Context, apply applying, isKept bool) {
		right, name := application("gitops:misspelt-field", "  owner: repository\n  ttl: 1h\n")
		Expect(apply(ctx, right)).To(Succeed())
		before := get(ctx, name)
		wrong, _ := application("gitops:misspelt-field", "  owner: repository\n  ttl: 1h\n  raeson: a word\n")
		err := apply(ctx, wrong)
		GinkgoWriter.Println(err)
		Expect(err).To(MatchError(ContainSubstring("raeson")))
		after := &v1alpha1.Lock{}
		err = admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, after)
		if !isKept {
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec).To(Equal(before.Spec))
	},
	Entry("kubectl apply, does not change the lock", withKubectl(), true),
	Entry("kubectl apply --server-side, does not change the lock", withKubectl("--server-side"), true),
	Entry("kubectl apply --force, ends the lock", withKubectl("--force"), false),
	Entry("Flux, does not change the lock", withFlux(), true),
	Entry("Flux with force: true, does not change the lock", withFlux(withForce), true),
)
