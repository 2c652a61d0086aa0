package webhook_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

var _ = Describe("Admission by a machine whose clock is wrong", func() {
	for _, wrong := range []time.Duration{-time.Hour, -4 * time.Second, 4 * time.Second, time.Hour} {
		It("stamps a new lock with the right time once the API server has answered, "+wrong.String(), func(ctx context.Context) {
			local := &testenv.SteppedClock{}
			local.Step(wrong)
			now := servertime.New(local)
			config, _, err := environment.User(testenv.OperatorUser)
			Expect(err).NotTo(HaveOccurred())
			config = rest.CopyConfig(config)
			config.Wrap(now.RoundTripper)
			reader, err := client.New(config, client.Options{Scheme: environment.Scheme})
			Expect(err).NotTo(HaveOccurred())
			Expect(reader.List(ctx, &v1alpha1.LockList{}, client.Limit(1))).To(Succeed())
			expectRightStamps(ctx, &webhook.LockAdmission{
				Client: operator, LiveReader: reader, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, Clock: now,
			})
		})
	}
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
