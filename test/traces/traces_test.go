package traces_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"forrst.dev/lock-operator/test/support/collector"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	ofAlice = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	ofBob   = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	ofCarol = "cccccccccccccccccccccccccccccccc"
	ofDave  = "dddddddddddddddddddddddddddddddd"
)

// tokenIn returns the lock token of an answer of the REST door.
func tokenIn(answer []byte) string {
	GinkgoHelper()
	var held struct {
		LockToken string `json:"lock_token"`
	}
	Expect(json.Unmarshal(answer, &held)).To(Succeed(), "%s", answer)
	Expect(held.LockToken).NotTo(BeEmpty())
	return held.LockToken
}

// acquireWaiting acquires in the background, and returns when the caller waits.
func acquireWaiting(ctx context.Context, f *traced, who caller, path string) (token <-chan string) {
	GinkgoHelper()
	granted := make(chan string, 1)
	go func() {
		defer GinkgoRecover()
		defer close(granted)
		status, answer := who.do(ctx, http.MethodPost, path, `{"ttl_seconds":60,"wait_seconds":30}`)
		Expect(status).To(Equal(http.StatusCreated), "%s", answer)
		granted <- tokenIn(answer)
	}()
	// The caller has tried at once, and reads who was faster. Until it has, a release would not know that it waits.
	Eventually(f.reads).WithTimeout(patience).Should(BeEquivalentTo(1))
	// A request to the API server takes longer than the step from the answer into the queue.
	status, answer := who.do(ctx, http.MethodGet, path, "", "Traceparent", "")
	Expect(status).To(Equal(http.StatusOK), "%s", answer)
	return granted
}

// expectLink requires that the span has one link, to the other.
func expectLink(from, to *collector.Span) {
	GinkgoHelper()
	Expect(from.GetLinks()).To(HaveLen(1))
	Expect(hex.EncodeToString(from.GetLinks()[0].GetTraceId())).To(Equal(hex.EncodeToString(to.GetTraceId())))
	Expect(hex.EncodeToString(from.GetLinks()[0].GetSpanId())).To(Equal(hex.EncodeToString(to.GetSpanId())))
}

var everything = []string{"get", "create", "force-release"}

var _ = Describe("A trace", func() {
	for _, protocol := range protocols {
		It("shows the wait of a caller, and the release that has ended it, over "+protocol, func(ctx context.Context) {
			received := collect(ctx, protocol)
			f := startTraced(ctx)
			path := "/v1/namespaces/" + namespace + "/locks/billing:report"
			alice, bob := worker(ctx, f.url, "alice", ofAlice, everything...), worker(ctx, f.url, "bob", ofBob, everything...)
			status, answer := alice.do(ctx, http.MethodPost, path, `{"ttl_seconds":60}`)
			Expect(status).To(Equal(http.StatusCreated), "%s", answer)
			tokenOfAlice := tokenIn(answer)
			bobs := acquireWaiting(ctx, f, bob, path)
			alice.traceID = ofCarol
			status, answer = alice.do(ctx, http.MethodDelete, path, "", "X-Lock-Token", tokenOfAlice)
			Expect(status).To(Equal(http.StatusNoContent), "%s", answer)
			tokenOfBob := <-bobs
			stored := &storedLock{}
			stored.read(ctx)

			// Refused in every way.
			mallory := worker(ctx, f.url, "mallory", ofDave)
			status, _ = mallory.do(ctx, http.MethodPost, path, `{"ttl_seconds":60}`)
			Expect(status).To(Equal(http.StatusForbidden))
			status, _ = alice.do(ctx, http.MethodDelete, path, "", "X-Lock-Token", tokenOfBob, "Traceparent", "")
			Expect(status).To(Equal(http.StatusForbidden))
			stranger := caller{url: f.url, token: "no-token-of-this-cluster", traceID: ofDave}
			status, _ = stranger.do(ctx, http.MethodPost, path, `{"ttl_seconds":60}`)
			Expect(status).To(Equal(http.StatusUnauthorized))
			f.stop()

			acquired := treeOf(received, ofAlice)
			Expect(acquired.names()).To(ConsistOf("rest acquire", "rest acquire > create subjectaccessreviews", "rest acquire > create locks"))
			call := acquired.only("rest acquire")
			Expect(hex.EncodeToString(call.GetParentSpanId())).To(Equal(parentID))
			Expect(call.GetKind()).To(Equal(tracepb.Span_SPAN_KIND_SERVER))
			Expect(call.Text("lock_operator.key")).To(Equal("billing:report"))
			Expect(call.Text("lock_operator.namespace")).To(Equal(namespace))
			Expect(acquired.only("create locks").Text("http.response.status_code")).To(Equal("201"))
			Expect(acquired.only("create locks").GetKind()).To(Equal(tracepb.Span_SPAN_KIND_CLIENT))

			waited, released := treeOf(received, ofBob), treeOf(received, ofCarol)
			Expect(waited.names()).To(ContainElements("rest acquire", "rest acquire > wait"))
			Expect(waited.names()).NotTo(ContainElement(ContainSubstring("update locks")), "the release grants the lock")
			Expect(released.names()).To(ContainElements("rest release", "rest release > update locks"))
			wait := waited.only("wait")
			expectLink(wait, released.only("rest release"))
			Expect(wait.GetStatus().GetCode()).To(Equal(tracepb.Status_STATUS_CODE_UNSET))
			Expect(wait.Text("lock_operator.key")).To(Equal("billing:report"))
			Expect(wait.GetEndTimeUnixNano()).To(BeNumerically(">", released.only("update locks").GetStartTimeUnixNano()))
			Expect(waited.only("rest acquire").Text("lock_operator.fencing_token")).To(Equal(stored.version))

			refused := treeOf(received, ofDave)
			var outcomes []string
			for _, span := range refused {
				if span.GetKind() == tracepb.Span_SPAN_KIND_SERVER {
					Expect(span.GetStatus().GetCode()).To(Equal(tracepb.Status_STATUS_CODE_ERROR))
					outcomes = append(outcomes, span.Text("lock_operator.outcome"))
				}
			}
			Expect(outcomes).To(ConsistOf("forbidden", "unauthenticated"))
			Expect(refused.failed("authenticate")).To(ConsistOf("unauthenticated"))

			for name, secret := range map[string]string{
				"Alice's lock token": tokenOfAlice, "Bob's lock token": tokenOfBob, "Bob's owner token": stored.owner,
				"Alice's bearer token": alice.token, "Bob's bearer token": bob.token, "a stranger's token": stranger.token,
				"a part of Bob's lock token": strings.Split(tokenOfBob, "_")[1],
			} {
				Expect(strings.Contains(string(received.Bytes()), secret)).To(BeFalse(), "%s was sent", name)
			}
		})
	}

	It("belongs to the trace of the Forrst extension, and shows the lock around a function", func(ctx context.Context) {
		received := collect(ctx, "grpc")
		f := startTraced(ctx)
		alice := worker(ctx, f.url, "alice", "", everything...)
		status, answer := alice.do(ctx, http.MethodPost, "/forrst/"+namespace, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1",
			"call":{"function":"forrst.ping","version":"1.0.0"},"extensions":[
			{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"`+ofAlice+`","span_id":"`+parentID+`"}},
			{"urn":"urn:forrst:ext:atomic-lock","options":{"key":"sku:X9","owner":"a-secret-owner","ttl":{"value":20,"unit":"second"}}}]}`)
		Expect(status).To(Equal(http.StatusOK), "%s", answer)
		f.stop()
		spans := treeOf(received, ofAlice)
		Expect(spans.names()).To(ConsistOf("forrst ping", "forrst ping > create subjectaccessreviews", "forrst ping > create locks", "forrst ping > delete locks"))
		call := spans.only("forrst ping")
		Expect(hex.EncodeToString(call.GetParentSpanId())).To(Equal(parentID))
		Expect(call.Text("lock_operator.key")).To(Equal("forrst.ping:sku:X9"))
		Expect(string(answer)).To(ContainSubstring(`"span_id":"` + hex.EncodeToString(call.GetSpanId()) + `"`))
		Expect(string(received.Bytes())).NotTo(ContainSubstring("a-secret-owner"))
	})

	It("links a wait to a forced release, which deletes the lock", func(ctx context.Context) {
		received := collect(ctx, "http/protobuf")
		f := startTraced(ctx)
		path := "/v1/namespaces/" + namespace + "/locks/k"
		alice, bob := worker(ctx, f.url, "alice", "", everything...), worker(ctx, f.url, "bob", ofBob, everything...)
		status, answer := alice.do(ctx, http.MethodPost, path, `{"ttl_seconds":60}`)
		Expect(status).To(Equal(http.StatusCreated), "%s", answer)
		bobs := acquireWaiting(ctx, f, bob, path)
		alice.traceID = ofCarol
		status, answer = alice.do(ctx, http.MethodDelete, path+"?force=true&reason=stuck", "")
		Expect(status).To(Equal(http.StatusNoContent), "%s", answer)
		<-bobs
		f.stop()
		waited := treeOf(received, ofBob)
		Expect(waited.names()).To(ContainElement("rest acquire > wait > create locks"))
		expectLink(waited.only("wait"), treeOf(received, ofCarol).only("rest force_release"))
	})

	It("tells that a wait was over before the lock was free", func(ctx context.Context) {
		received := collect(ctx, "http/protobuf")
		f := startTraced(ctx)
		path := "/v1/namespaces/" + namespace + "/locks/k"
		alice, bob := worker(ctx, f.url, "alice", "", everything...), worker(ctx, f.url, "bob", ofBob, everything...)
		status, answer := alice.do(ctx, http.MethodPost, path, `{"ttl_seconds":60}`)
		Expect(status).To(Equal(http.StatusCreated), "%s", answer)
		status, answer = bob.do(ctx, http.MethodPost, path, `{"ttl_seconds":60,"wait_seconds":1}`)
		Expect(status).To(Equal(http.StatusLocked), "%s", answer)
		f.stop()
		wait := treeOf(received, ofBob).only("wait")
		Expect(wait.GetStatus().GetMessage()).To(Equal("wait_ended"))
		Expect(wait.GetLinks()).To(BeEmpty())
	})
})

// startProgram starts the program's façade with further flags, and returns a caller of it.
func startProgram(ctx context.Context, identity *testenv.Kubectl, name, traceID string, flags ...string) (*gexec.Session, caller) {
	GinkgoHelper()
	const audience = "locks"
	address := fixture.FreeAddress(ctx)
	program := fixture.StartOperator(ctx, identity, append(flags, "--components=facade", "--facade-auth=token", "--facade-audiences="+audience,
		"--facade-bind-address="+address, "--facade-shutdown-delay=0s", "--leader-election-namespace=default")...)
	who := worker(ctx, "http://"+address, name, traceID, everything...)
	who.token = tokenOf(ctx, name, audience)
	return program, who
}

var _ = Describe("The program", func() {
	for _, protocol := range protocols {
		It("sends what is left when it stops, over "+protocol, func(ctx context.Context) {
			received := collect(ctx, protocol)
			GinkgoT().Setenv("OTEL_SERVICE_NAME", "locks-of-payments")
			GinkgoT().Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
			program, alice := startProgram(ctx, environment.Operator().Kubectl, "alice", ofAlice)
			status, answer := alice.do(ctx, http.MethodPost, "/v1/namespaces/"+namespace+"/locks/k", `{"ttl_seconds":60}`)
			Expect(status).To(Equal(http.StatusCreated), "%s", answer)
			Expect(received.Spans()).To(BeEmpty())
			program.Terminate().Wait(patience)
			spans := treeOf(received, ofAlice)
			Expect(spans.names()).To(ContainElements("rest acquire", "rest acquire > create locks"))
			Expect(spans[0].Resource).To(HaveKeyWithValue("service.name", "locks-of-payments"))
			Expect(spans).To(HaveLen(len(received.Spans())), "what no caller asks for is no trace")
		})
	}
})
