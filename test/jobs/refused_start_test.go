package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// refused marks the Jobs that a policy of the cluster keeps suspended.
const refused = "test.forrst.dev/refused"

var _ = Describe("A Job whose start the API server refuses", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })
	AfterEach(expectNoViolations)

	// refuse has a policy refuse the starts of the Jobs that are marked.
	refuse := func(ctx context.Context, reason metav1.StatusReason) {
		GinkgoHelper()
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
					}}},
				},
				Validations: []admissionregistrationv1.Validation{{
					Expression: "!('" + refused + "' in object.metadata.annotations) || object.spec.suspend", Message: "not in this season", Reason: &reason,
				}},
			},
		}
		Expect(admin.Create(ctx, policy)).To(Succeed())
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
				},
			},
		}
		Expect(admin.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(admin.Delete(ctx, binding)).To(Succeed())
			Expect(admin.Delete(ctx, policy)).To(Succeed())
		})
		probe := makeJob(namespace, "probe", "none", annotated(refused, "yes"), func(job *batchv1.Job) {
			job.Labels = nil
			delete(job.Annotations, v1alpha1.LockKeyAnnotation)
			job.Spec.Suspend = new(true)
		})
		create(ctx, probe)
		Eventually(func() error {
			before := read(ctx, probe)
			resumed := before.DeepCopy()
			resumed.Spec.Suspend = new(false)
			return admin.Patch(ctx, resumed, client.MergeFrom(before), client.DryRunAll)
		}).Should(MatchError(ContainSubstring("not in this season")))
	}

	It("as invalid fails, and other Jobs run", func(ctx context.Context) {
		refuse(ctx, metav1.StatusReasonInvalid)
		stuck := create(ctx, makeJob(namespace, "stuck", "key", annotated(refused, "yes")))
		next := create(ctx, makeJob(namespace, "next", "key"))
		startOperator(ctx)
		Eventually(isRunning(ctx, next)).Should(BeTrue())
		Eventually(has(ctx, stuck, batchv1.JobFailed)).Should(BeTrue())
		Expect(conditionOf(read(ctx, stuck), batchv1.JobFailed)).To(And(HaveField("Reason", "LockStartRefused"),
			HaveField("Message", ContainSubstring("not in this season"))))
		Eventually(eventsOf(ctx, stuck)).Should(ContainSubstring("Warning LockStartRefused: The Job cannot be started"))
		Eventually(func() []string { return read(ctx, stuck).Finalizers }).Should(BeEmpty())
		finish(ctx, next)
		Expect(startsOf(namespace)).To(Equal([]string{"next"}))
	})

	It("as forbidden waits, while other Jobs run", func(ctx context.Context) {
		refuse(ctx, metav1.StatusReasonForbidden)
		stuck := create(ctx, makeJob(namespace, "stuck", "key", annotated(refused, "yes")))
		next := create(ctx, makeJob(namespace, "next", "key"))
		startOperator(ctx)
		finish(ctx, next)
		Eventually(eventsOf(ctx, stuck)).Should(And(ContainSubstring("Warning LockStartRefused: Leaves the lock to others"), ContainSubstring("not in this season")))
		Expect(conditionOf(read(ctx, stuck), batchv1.JobFailed)).To(BeNil())
		Expect(startsOf(namespace)).To(Equal([]string{"next"}))
	})
})
