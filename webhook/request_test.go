package webhook_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("Asking for a transition of a Lock", func() {
	annotate := func(value string) string { return v1alpha1.RequestAnnotation + "=" + value }

	It("renews for the holder, each time, and keeps the token", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("renewed"))
		granted, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		for range 3 {
			before := lock.Spec.ExpireTime.Time
			_, err := aliceKubectl.Run(ctx, "", "annotate", "lock", "renewed", annotate("renew"))
			Expect(err).NotTo(HaveOccurred())
			Expect(alice.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			Expect(lock.Spec.ExpireTime.Time).To(BeTemporally(">", before))
			Expect(lock.FencingToken()).To(Equal(granted))
			Expect(lock.Annotations).NotTo(HaveKey(v1alpha1.RequestAnnotation))
		}
	})

	It("hands the lock to another owner of the holder in one write", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("handed-on"))
		granted, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		lock.Spec.Owner = "next"
		lock.Annotations = map[string]string{v1alpha1.RequestAnnotation: v1alpha1.RequestHandOff}
		Expect(alice.Update(ctx, lock)).To(Succeed())
		Expect(lock.Spec.Owner).To(Equal("next"))
		Expect(lock.FencingToken()).To(BeNumerically(">", granted))
		Expect(lock.Spec.FencingToken).To(BeNil())
	})

	It("is allowed only for the holder", func(ctx context.Context) {
		created(ctx, alice, manifest("not-yours"))
		_, err := bobKubectl.Run(ctx, "", "annotate", "lock", "not-yours", annotate("renew"))
		Expect(err).To(MatchError(ContainSubstring("held by")))
		_, err = bobKubectl.Run(ctx, "", "patch", "lock", "not-yours", "--type=merge",
			"-p", `{"metadata":{"annotations":{"`+v1alpha1.RequestAnnotation+`":"hand-off"}},"spec":{"owner":"bob"}}`)
		Expect(err).To(MatchError(ContainSubstring("held by")))
	})

	It("does not revive an expired lock", func(ctx context.Context) {
		lock := created(ctx, alice, manifest("too-late", ttl(time.Millisecond)))
		Eventually(func() bool { return time.Now().After(lock.Spec.ExpireTime.Time) }).Should(BeTrue())
		lock.Annotations = map[string]string{v1alpha1.RequestAnnotation: v1alpha1.RequestRenewal}
		err := alice.Update(ctx, lock)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
		Expect(err).To(MatchError(ContainSubstring("has expired")))
	})
})
