package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook"
)

// These specs call the handler with authorizers that fail and clocks that were stepped, which
// a client cannot arrange. The suite test/admission deletes real locks.
var _ = Describe("Deleting a Lock", func() {
	var noon time.Time
	var asked []authorizer.Attributes
	var decision authorizer.Decision
	var failure error

	BeforeEach(func() {
		noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		asked, decision, failure = nil, authorizer.DecisionNoOpinion, nil
	})

	// judge asks about a lock that alice holds from noon for a minute. The handler has no
	// clients, so it reads nothing.
	judge := func(ctx context.Context, operation admissionv1.Operation, user string, after time.Duration) admission.Response {
		GinkgoHelper()
		old, _, err := rules.AdmitCreate(manifest("billing:report", ttl(time.Minute)), rules.User{Name: "alice"}, rules.DefaultLimits(), noon)
		Expect(err).NotTo(HaveOccurred())
		old.ResourceVersion = "7"
		old.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "because"}
		updated := old.DeepCopy()
		updated.Annotations[v1alpha1.ForceReleaseReasonAnnotation] = "otherwise"
		handler := &webhook.LockAdmission{
			Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
			Clock: clocktesting.NewFakePassiveClock(noon.Add(after)),
			Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = append(asked, attributes)
				return decision, "", failure
			}),
		}
		asking := request(operation, old, updated)
		if operation == admissionv1.Delete {
			asking = request(operation, old, &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace}})
			asking.Object.Raw = nil
		}
		asking.UserInfo = authenticationv1.UserInfo{Username: user, Groups: []string{"team"}, UID: "1",
			Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a"}}}
		return handler.Handle(fromAPIServer(ctx), asking)
	}

	It("asks for the right only about live locks of other holders", func(ctx context.Context) {
		for _, user := range []string{"alice", "system:serviceaccount:kube-system:generic-garbage-collector"} {
			Expect(judge(ctx, admissionv1.Delete, user, 0).Allowed).To(BeTrue())
			Expect(judge(ctx, admissionv1.Delete, user, time.Hour).Allowed).To(BeTrue())
		}
		Expect(judge(ctx, admissionv1.Delete, "bob", 61*time.Second).Allowed).To(BeTrue())
		Expect(asked).To(BeEmpty())
		Expect(judge(ctx, admissionv1.Delete, "bob", 0).Allowed).To(BeFalse())
		Expect(asked).To(HaveLen(1))
	})

	It("leaves an expired lock alone for the clock skew allowance", func(ctx context.Context) {
		Expect(judge(ctx, admissionv1.Delete, "bob", 61*time.Second-1).Allowed).To(BeFalse())
	})

	It("asks with all attributes that a role can restrict", func(ctx context.Context) {
		decision = authorizer.DecisionAllow
		for _, operation := range []admissionv1.Operation{admissionv1.Delete, admissionv1.Update} {
			asked = nil
			response := judge(ctx, operation, "bob", 0)
			Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
			Expect(asked).To(HaveLen(1))
			Expect(asked[0].GetVerb()).To(Equal("force-release"))
			Expect(asked[0].GetAPIGroup()).To(Equal("forrst.dev"))
			Expect(asked[0].GetAPIVersion()).To(Equal("v1alpha1"))
			Expect(asked[0].GetResource()).To(Equal("locks"))
			Expect(asked[0].GetNamespace()).To(Equal("default"))
			Expect(asked[0].GetName()).To(Equal("billing--report"))
			Expect(asked[0].IsResourceRequest()).To(BeTrue())
			Expect(asked[0].GetUser().GetName()).To(Equal("bob"))
			Expect(asked[0].GetUser().GetUID()).To(Equal("1"))
			Expect(asked[0].GetUser().GetGroups()).To(Equal([]string{"team"}))
			Expect(asked[0].GetUser().GetExtra()).To(Equal(map[string][]string{"scopes": {"a"}}))
		}
	})

	DescribeTable("fails closed", func(ctx context.Context, given authorizer.Decision, err error, message string) {
		decision, failure = given, err
		for _, operation := range []admissionv1.Operation{admissionv1.Delete, admissionv1.Update} {
			response := judge(ctx, operation, "bob", 0)
			Expect(response.Allowed).To(BeFalse())
			Expect(response.Result.Code).To(BeEquivalentTo(http.StatusForbidden))
			Expect(response.Result.Reason).To(Equal(metav1.StatusReasonForbidden))
			Expect(response.Result.Message).To(And(ContainSubstring(`is held by "alice" until 2026-11-20T12:01:00`), ContainSubstring(message)))
			Expect(response.Result.Message).NotTo(ContainSubstring("token-a"))
		}
		Expect(judge(ctx, admissionv1.Delete, "alice", 0).Allowed).To(BeTrue())
	},
		Entry("without the right", authorizer.DecisionNoOpinion, nil, "ask a user who has the verb force-release on locks.forrst.dev"),
		Entry("with the right denied", authorizer.DecisionDeny, nil, "ask a user who has the verb force-release on locks.forrst.dev"),
		Entry("if the API server does not answer", authorizer.DecisionNoOpinion, errors.New("connection refused"), "could not be found out; try again"),
	)

	It("refuses an object that is not a Lock without a panic", func(ctx context.Context) {
		asking := request(admissionv1.Delete, nil, &v1alpha1.Lock{})
		asking.OldObject.Raw = []byte(`{"spec":1}`)
		Expect((&webhook.LockAdmission{}).Handle(ctx, asking).Allowed).To(BeFalse())
	})
})
