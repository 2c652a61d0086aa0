package gitops_test

import (
	"context"
	"fmt"
	"os"
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

func withArgoCD(flags ...string) applying {
	return func(ctx context.Context, folder string) error {
		GinkgoHelper()
		if outcome := syncOne(ctx, folder, flags...); outcome.Phase != "Succeeded" {
			return fmt.Errorf("%+v", outcome)
		}
		return nil
	}
}

// The table of docs/gitops.md. A spec that fails since a tool has become better is good news for that page.
var _ = DescribeTable("A manifest of a held Lock with a field that there is not, applied by",
	func(ctx context.Context, apply applying, isRefused, isKept bool) {
		path, name := application("gitops:misspelt-field", "  owner: repository\n  ttl: 1h\n")
		Expect(apply(ctx, path)).To(Succeed())
		before := get(ctx, name)
		write(path, "lock.yaml", string(must(os.ReadFile(filepath.Join(path, "lock.yaml"))))+"  raeson: a word\n")
		err := apply(ctx, path)
		GinkgoWriter.Println(err)
		if isRefused {
			Expect(err).To(MatchError(ContainSubstring("raeson")))
		} else {
			Expect(err).NotTo(HaveOccurred())
			// The tool stores the manifest in an annotation, and such a write records the token.
			before.Spec.FencingToken = new(must(before.FencingToken()))
		}
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
	Entry("kubectl apply, does not change the lock", withKubectl(), true, true),
	Entry("kubectl apply --server-side, does not change the lock", withKubectl("--server-side"), true, true),
	Entry("kubectl apply --force, ends the lock", withKubectl("--force"), true, false),
	Entry("Flux, does not change the lock", Label("nightly"), withFlux(), true, true),
	Entry("Flux with force: true, does not change the lock", Label("nightly"), withFlux(withForce), true, true),
	Entry("Argo CD with ServerSideApply=true, does not change the lock", Label("nightly"), withArgoCD("-server-side"), true, true),
	Entry("Argo CD, succeeds without the field", Label("nightly"), withArgoCD(), false, true),
	Entry("Argo CD with Force=true, succeeds without the field", Label("nightly"), withArgoCD("-force"), false, true),
)
