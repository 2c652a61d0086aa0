package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

var _ = Describe("Admission by a clock that was stepped", func() {
	var local *testenv.SteppedClock
	var live *countingReader
	var handler *webhook.LockAdmission

	BeforeEach(func() {
		local = &testenv.SteppedClock{}
		now := servertime.New(local)
		config, _, err := environment.User(testenv.OperatorUser)
		Expect(err).NotTo(HaveOccurred())
		config = rest.CopyConfig(config)
		config.Wrap(now.RoundTripper)
		reader, err := client.New(config, client.Options{Scheme: environment.Scheme})
		Expect(err).NotTo(HaveOccurred())
		live = &countingReader{Reader: reader}
		handler = &webhook.LockAdmission{
			Client: operator, LiveReader: live, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, Clock: now,
		}
	})

	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		It("stamps a new lock with the right time, "+step.String(), func(ctx context.Context) {
			local.Step(step)
			expectRightStamps(ctx, handler)
		})

		It("leaves a held lock to its holder, "+step.String(), func(ctx context.Context) {
			stored := created(ctx, alice, manifest("held", ttl(time.Minute)))
			taken := stored.DeepCopy()
			taken.Spec.Owner = "token-b"
			for range 2 {
				local.Step(step)
				response := handler.Handle(ctx, updateByBob(stored, taken))
				Expect(response.Allowed).To(BeFalse(), "a held lock was given away by an update")
				local.Step(step)
				response = handler.Handle(ctx, request(admissionv1.Create, nil, manifest("held")))
				Expect(response.Allowed).To(BeFalse(), "a held lock was given away by a create")
			}
			Expect(operator.Get(ctx, client.ObjectKeyFromObject(stored), &v1alpha1.Lock{})).To(Succeed())
		})

		It("gives an expired lock to the next user who changes its owner, "+step.String(), func(ctx context.Context) {
			stored := expired(ctx, "free")
			taken := stored.DeepCopy()
			taken.Spec.Owner = "token-b"
			Eventually(func() bool {
				local.Step(step)
				return handler.Handle(ctx, updateByBob(stored, taken)).Allowed
			}).WithPolling(100 * time.Millisecond).Should(BeTrue())
			local.Step(step)
			response := handler.Handle(ctx, request(admissionv1.Create, nil, manifest("free")))
			Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
		})
	}

	for seconds := -6; seconds <= 6; seconds += 2 {
		wrong := time.Duration(seconds) * time.Second
		It("stamps a new lock with the right time though its clock was wrong from the start, "+wrong.String(), func(ctx context.Context) {
			local.Step(wrong)
			expectRightStamps(ctx, handler)
		})
	}

	It("reads the time once in some seconds", func(ctx context.Context) {
		local.Step(time.Hour)
		for _, key := range []string{"once-a", "once-b", "once-c"} {
			response := handler.Handle(ctx, request(admissionv1.Create, nil, manifest(key)))
			Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
		}
		Expect(live.reads).To(Equal(1))
	})

	It("is refused if the time is unknown", func(ctx context.Context) {
		live.err = errors.New("no API server")
		response := handler.Handle(ctx, request(admissionv1.Create, nil, manifest("timeless")))
		Expect(response.Allowed).To(BeFalse())
		Expect(response.Result.Reason).To(Equal(metav1.StatusReasonInternalError))
	})
})

// expectRightStamps has the handler admit a new lock.
func expectRightStamps(ctx context.Context, handler *webhook.LockAdmission) {
	GinkgoHelper()
	began := time.Now()
	response := handler.Handle(ctx, request(admissionv1.Create, nil, manifest("stamped", ttl(time.Minute))))
	took := time.Since(began)
	Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
	// The lock was stamped at any moment meanwhile. Dates have whole seconds, and a slow answer tells less.
	Expect(stampedExpiry(response)).To(BeTemporally("~", began.Add(time.Minute+took/2), time.Second+took+took/2))
}

// stampedExpiry returns the expireTime that the response sets.
func stampedExpiry(response admission.Response) time.Time {
	GinkgoHelper()
	for _, patch := range response.Patches {
		if patch.Path != "/spec/expireTime" {
			continue
		}
		raw, err := json.Marshal(patch.Value)
		Expect(err).NotTo(HaveOccurred())
		var expire v1alpha1.Timestamp
		Expect(json.Unmarshal(raw, &expire)).To(Succeed())
		return expire.Time
	}
	Fail("no expireTime was stamped")
	return time.Time{}
}

// countingReader counts the requests, and fails them if it has an err.
type countingReader struct {
	client.Reader
	reads int
	err   error
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.reads++
	if r.err != nil {
		return r.err
	}
	return r.Reader.Get(ctx, key, object, options...)
}
