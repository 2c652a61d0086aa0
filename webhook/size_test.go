package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
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
	explained := func(err error) {
		GinkgoHelper()
		Expect(err).To(MatchError(And(ContainSubstring("metadata"), ContainSubstring("use fewer labels and annotations"))))
	}
	// refused checks that the answer to a change makes no tool delete the lock.
	refused := func(err error) {
		GinkgoHelper()
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%s: %v", apierrors.ReasonForError(err), err)
		explained(err)
	}

	It("is bounded for other users, since each renewal writes the whole Lock", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("inflated"))
		blown := lock.DeepCopy()
		blown.Labels = labels(70)
		refused(bob.Update(ctx, blown))
		blown.Labels = labels(40)
		Expect(bob.Update(ctx, blown)).To(Succeed())
		blown.Labels = labels(70)
		refused(bob.Patch(ctx, blown, client.MergeFrom(lock)))
		Expect(aliceKubectl.Run(ctx, "", "annotate", "lock", "inflated", v1alpha1.RequestAnnotation+"=renew")).Error().NotTo(HaveOccurred())
	})

	It("is bounded for the holder, since every replica has all Locks in memory", func(ctx context.Context) {
		err := alice.Create(ctx, manifest("large", func(l *v1alpha1.Lock) { l.Labels = labels(90) }))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", apierrors.ReasonForError(err), err)
		explained(err)
		lock := created(ctx, alice, manifest("larger"))
		lock.Labels = labels(70)
		Expect(alice.Update(ctx, lock)).To(Succeed())
		lock.Labels = labels(90)
		refused(alice.Update(ctx, lock))
		lock.Labels = labels(400) // refused before it is decoded
		refused(alice.Update(ctx, lock))
	})

	It("does not keep a full lock, or one that an earlier version has stored, from being ended", func(ctx context.Context) {
		note := func(bytes int) func(*v1alpha1.Lock) {
			return func(l *v1alpha1.Lock) {
				l.Annotations = map[string]string{"example.com/note": strings.Repeat("x", bytes)}
			}
		}
		forceRelease := func(name string) {
			GinkgoHelper()
			reason := v1alpha1.ForceReleaseReasonAnnotation + "=" + strings.Repeat("r", rules.MaxReasonLength)
			Expect(environment.Admin.Kubectl.Run(ctx, "", "annotate", "lock", name, reason)).Error().NotTo(HaveOccurred())
			Expect(environment.Admin.Kubectl.Run(ctx, "", "delete", "lock", name)).Error().NotTo(HaveOccurred())
		}
		created(ctx, alice, manifest("full", note(rules.MaxBytes-1200)))
		forceRelease("full")

		for _, end := range []func(name string){forceRelease, func(name string) {
			Expect(aliceKubectl.Run(ctx, "", "delete", "lock", name)).Error().NotTo(HaveOccurred())
		}} {
			former, _, err := rules.AdmitCreate(manifest("former", note(100<<10)), rules.User{Name: "alice"}, rules.DefaultLimits(), time.Now())
			Expect(err).NotTo(HaveOccurred())
			created(ctx, operator, former)
			Expect(aliceKubectl.Run(ctx, "", "annotate", "lock", "former", v1alpha1.RequestAnnotation+"=renew")).Error().NotTo(HaveOccurred())
			refused(bob.Patch(ctx, former, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/more":"x"}}}`))))
			end("former")
		}
	})
})
