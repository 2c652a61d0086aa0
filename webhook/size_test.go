package webhook_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// labels returns the number of labels, of about 200 bytes each including their managed
// fields.
func labels(count int) map[string]string {
	labels := make(map[string]string, count)
	for index := range count {
		labels[fmt.Sprintf("%s-%06d", strings.Repeat("k", 50), index)] = strings.Repeat("v", 63)
	}
	return labels
}

var _ = Describe("The size of a Lock", func() {
	refused := func(err error) {
		GinkgoHelper()
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
		Expect(err).To(MatchError(And(ContainSubstring("metadata"), ContainSubstring("use fewer labels and annotations"))))
	}

	It("is bounded for other users, since each renewal writes the whole Lock", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("inflated"))
		blown := lock.DeepCopy()
		blown.Labels = labels(600)
		refused(bob.Update(ctx, blown))
		blown.Labels = labels(100)
		Expect(bob.Update(ctx, blown)).To(Succeed())
		blown.Labels = labels(600)
		refused(bob.Patch(ctx, blown, client.MergeFrom(lock)))
		Expect(aliceKubectl.Run(ctx, "", "annotate", "lock", "inflated", v1alpha1.RequestAnnotation+"=renew")).Error().NotTo(HaveOccurred())
	})

	It("is bounded for the holder, since every replica has all Locks in memory", func(ctx context.Context) {
		refused(alice.Create(ctx, manifest("large", func(l *v1alpha1.Lock) { l.Labels = labels(2000) })))
		lock := created(ctx, alice, manifest("larger"))
		lock.Labels = labels(2000)
		refused(alice.Update(ctx, lock))
	})
})
