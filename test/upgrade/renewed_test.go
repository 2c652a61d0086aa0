package upgrade_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

// renewedTTL is long enough for the controllers to be replaced before it is over, also on a busy machine.
const renewedTTL = 2 * time.Minute

// createRenewed creates a lock that the operator is to renew, as the earlier release cannot.
func createRenewed(ctx context.Context, namespace string) *v1alpha1.Lock {
	GinkgoHelper()
	admin := environment.Admin.Client
	in := &corev1.Namespace{}
	in.Name = namespace
	Expect(admin.Patch(ctx, in, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.MaxOperatorRenewalAnnotation+`":"1h"}}}`)))).To(Succeed())
	renewed := fixture.Manifest(namespace, "renewed", fixture.TTL(renewedTTL), func(lock *v1alpha1.Lock) {
		lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
	})
	Expect(admin.Create(ctx, renewed)).To(Succeed())
	Expect(renewed.Spec.RenewalEndTime).NotTo(BeNil())
	return renewed
}

func expectRenewal(ctx context.Context, renewed *v1alpha1.Lock) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(renewed), renewed)).To(Succeed())
		g.Expect(renewed.Spec.RenewTime.Time).To(BeTemporally(">", renewed.Spec.AcquireTime.Time))
	}).WithContext(ctx).WithTimeout(renewedTTL).Should(Succeed())
}
