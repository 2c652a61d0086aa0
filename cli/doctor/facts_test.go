package doctor

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/cli/session"
)

func TestAPolicyIsInForceIfABindingDenies(t *testing.T) {
	builder := fake.NewClientBuilder().WithScheme(session.Scheme)
	for name, labels := range map[string]map[string]string{
		"lock-operator-jobs": {nameLabel: operatorName}, "lock-operator-fence": {nameLabel: operatorName}, "lock-operator-of-others": nil,
	} {
		builder.WithObjects(&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for name, action := range map[string]admissionregistrationv1.ValidationAction{
		"lock-operator-jobs": admissionregistrationv1.Deny, "lock-operator-fence": admissionregistrationv1.Audit,
		"lock-operator-of-others": admissionregistrationv1.Deny, "lock-operator-keys": admissionregistrationv1.Deny, "others": admissionregistrationv1.Deny,
	} {
		builder.WithObjects(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		})
	}
	answer := policiesOf(t.Context(), builder.Build())
	if got := answer.Value; answer.Err != nil || !slices.Equal(got.InForce, []string{"lock-operator-jobs"}) ||
		!slices.Equal(got.Dangling, []string{"of-lock-operator-keys of lock-operator-keys"}) {
		t.Errorf("got %+v", answer)
	}
}
