package webhook_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

var _ = Describe("A Lock that the operator is to renew", func() {
	byOperator := func(lock *v1alpha1.Lock) { lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator }
	// namespaced creates a namespace with the annotation; empty is none.
	namespaced := func(ctx context.Context, bound string) string {
		GinkgoHelper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "renewal-"}}
		if bound != "" {
			namespace.Annotations = map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: bound}
		}
		Expect(environment.Admin.Client.Create(ctx, namespace)).To(Succeed())
		return namespace.Name
	}

	DescribeTable("is refused in a namespace that does not allow it", func(ctx context.Context, bound string) {
		lock := fixture.Manifest(namespaced(ctx, bound), "declared", byOperator)
		Expect(alice.Create(ctx, lock)).To(MatchError(ContainSubstring("Operator is not allowed in this namespace; its administrator allows it by the annotation forrst.dev/max-operator-renewal")))
	},
		Entry("by no annotation", ""),
		Entry("by one that is no duration", "30 days"),
		Entry("by one of a number alone", "720"),
		Entry("by one that is zero", "0s"),
		Entry("by one that is negative", "-1h"),
	)

	It("has the bound of its namespace, whatever becomes of that later", func(ctx context.Context) {
		namespace := namespaced(ctx, "720h")
		lock := created(ctx, alice, fixture.Manifest(namespace, "declared", byOperator))
		end := lock.Spec.AcquireTime.Add(720 * time.Hour)
		Expect(lock.Spec.RenewalEndTime.Time).To(BeTemporally("==", end))
		Expect(environment.Admin.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`)))).To(Succeed())
		lock.Spec.Reason = "Year-end freeze"
		Expect(alice.Update(ctx, lock)).To(Succeed())
		Expect(lock.Spec.RenewalEndTime.Time).To(BeTemporally("==", end))
		lock.Spec.RenewalPolicy = ""
		Expect(alice.Update(ctx, lock)).To(Succeed())
		Expect(lock.Spec.RenewalEndTime).To(BeNil())
		lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
		Expect(alice.Update(ctx, lock)).To(MatchError(ContainSubstring("not allowed in this namespace")))
	})

	It("is renewed no more by the operator once a façade of an earlier version renews it, until its manifest is applied", func(ctx context.Context) {
		lock := created(ctx, alice, fixture.Manifest(namespaced(ctx, "720h"), "declared", byOperator))
		// It writes what it knows of a lock, and the API server asks no webhook about that.
		earlier := lock.DeepCopy()
		earlier.Spec.RenewalPolicy, earlier.Spec.RenewalEndTime = "", nil
		Expect(environment.Operator().Client.Update(ctx, earlier)).To(Succeed())
		Expect(earlier.Spec.RenewalPolicy).To(BeEmpty())
		Expect(earlier.Spec.RenewalEndTime).To(BeNil())
		Expect(earlier.Spec.AcquireTime).To(Equal(lock.Spec.AcquireTime))

		earlier.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
		Expect(alice.Update(ctx, earlier)).To(Succeed())
		Expect(earlier.Spec.RenewalEndTime.Time).To(BeTemporally("==", lock.Spec.AcquireTime.Add(720*time.Hour)))
	})

	It("stays one when a program of an earlier version renews it", func(ctx context.Context) {
		lock := created(ctx, alice, fixture.Manifest(namespaced(ctx, "720h"), "declared", byOperator))
		earlier := lock.DeepCopy()
		earlier.Spec.RenewalPolicy, earlier.Spec.RenewalEndTime = "", nil
		earlier.Annotations = map[string]string{v1alpha1.RequestAnnotation: v1alpha1.RequestRenewal}
		Expect(alice.Update(ctx, earlier)).To(Succeed())
		Expect(earlier.Spec.RenewTime.Time).To(BeTemporally(">", lock.Spec.RenewTime.Time))
		Expect(earlier.Spec.RenewalPolicy).To(Equal(v1alpha1.RenewalByOperator))
		Expect(earlier.Spec.RenewalEndTime).To(Equal(lock.Spec.RenewalEndTime))
	})

	It("has no bound of its manifest", func(ctx context.Context) {
		lock := fixture.Manifest(namespaced(ctx, "720h"), "declared", byOperator)
		end := v1alpha1.NewTimestamp(time.Now().Add(9000 * time.Hour))
		lock.Spec.RenewalEndTime = &end
		Expect(alice.Create(ctx, lock)).To(MatchError(ContainSubstring("spec.renewalEndTime: Forbidden: is stamped by the service")))
	})
})
