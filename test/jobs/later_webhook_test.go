package jobs_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// What another webhook may take from a Job that the webhook of the operator has prepared.
const (
	dropFinalizer = `{"op":"add","path":"/metadata/finalizers","value":[]}`
	dropSuspend   = `{"op":"add","path":"/spec/suspend","value":false}`
)

// unprotected is the refusal of a new Job that nothing would hold back.
var unprotected = MatchError(ContainSubstring("metadata.labels[forrst.dev/lock]: Forbidden: nothing would keep the Job from running without the lock"))

// The API server calls the webhook of the operator again after a change, and the policy judges what is left.
var _ = Describe("A Job that a webhook changes which is called later", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	DescribeTable("waits for its lock, and has no pods without it",
		func(ctx context.Context, patch string) {
			first := create(ctx, makeJob(namespace, "first", "key"))
			Eventually(isRunning(ctx, first)).Should(BeTrue())
			callLater(ctx, namespace, admissionregistrationv1.NeverReinvocationPolicy, patch)
			next := create(ctx, makeJob(namespace, "next", "key"))
			Expect(next.Spec.Suspend).To(HaveValue(BeTrue()))
			Expect(next.Finalizers).To(ContainElement(v1alpha1.LockFinalizer))
			Consistently(isRunning(ctx, next)).WithTimeout(shortly).Should(BeFalse())
			finish(ctx, first)
			Eventually(isRunning(ctx, next)).Should(BeTrue())
			Expect(holderOf(ctx, namespace, "key")()).To(Equal(next.UID))
			finish(ctx, next)
			Expect(startsOf(namespace)).To(Equal([]string{"first", "next"}))
			Expect(tokensOf(namespace)).To(HaveEach(BeNumerically(">", 0)))
		},
		Entry("that takes the finalizer", dropFinalizer),
		Entry("that takes spec.suspend", dropSuspend),
	)

	DescribeTable("is refused if the other webhook has the last word",
		func(ctx context.Context, patch string) {
			callLater(ctx, namespace, admissionregistrationv1.IfNeededReinvocationPolicy, patch)
			job := makeJob(namespace, "job", "key")
			Expect(admin.Create(ctx, job)).To(unprotected)
			Expect(startsOf(namespace)).To(BeEmpty())
		},
		Entry("and takes the finalizer", dropFinalizer),
		Entry("and takes spec.suspend", dropSuspend),
	)
})

// callLater has another webhook patch each new Job of the namespace, after the webhook of the operator, until the spec ends. By
// the policy it is called again after a change, or not.
func callLater(ctx context.Context, namespace string, again admissionregistrationv1.ReinvocationPolicyType, patch string) {
	GinkgoHelper()
	var isCalled atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isCalled.Store(true)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Patch: []byte("[" + patch + "]"),
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	DeferCleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	later := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-" + namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "later.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig:       admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority},
			NamespaceSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ReinvocationPolicy: &again,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}},
		}},
	}
	Expect(admin.Create(ctx, later)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, later)).To(Succeed()) })
	// The API server knows of a webhook a moment after it was created.
	Eventually(func(g Gomega) {
		probe := makeJob(namespace, "probe", "key", func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil })
		_ = admin.Create(ctx, probe, client.DryRunAll) // It may be refused for what the webhook makes of it.
		g.Expect(isCalled.Load()).To(BeTrue())
	}).Should(Succeed())
}
