// Package traces_test proves what traces of locks tell, on an API server and over the wire to a collector
// (docs/tracing.md).
package traces_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe/requestmetrics"
	"forrst.dev/lock-operator/test/support/collector"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/test/support/testfacade"
	"forrst.dev/lock-operator/tracing/otlp"
)

// patience has room for a slow machine.
const patience = time.Minute

func TestTraces(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Traces of locks")
}

var (
	environment *fixture.Cluster
	namespace   string
	protocols   = []string{"grpc", "http/protobuf"}
)

var _ = BeforeSuite(func(ctx context.Context) { environment = fixture.Start(ctx) })

var _ = BeforeEach(func(ctx context.Context) { namespace = environment.Namespace(ctx, "traces-") })

// collect starts a collector, which the environment names.
func collect(ctx context.Context, protocol string) *collector.Collector {
	GinkgoHelper()
	received, err := collector.Start(ctx, protocol)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(received.Stop)
	GinkgoT().Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.Endpoint)
	GinkgoT().Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	return received
}

// traced is a façade whose traces are sent.
type traced struct {
	url string
	// requests has the metrics of requests to the API server.
	requests *prometheus.Registry
	// stop ends the façade and sends what is left.
	stop func()
}

func startTraced(ctx context.Context) *traced {
	GinkgoHelper()
	exporter := otlp.Start(ctx, otlp.Options{Logger: GinkgoLogr})
	Expect(exporter).NotTo(BeNil())
	config := rest.CopyConfig(environment.Operator().Config)
	config.Wrap(exporter.Tracer().RoundTripper)
	f := &traced{requests: prometheus.NewRegistry()}
	requests, err := requestmetrics.New(f.requests, clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	config.Wrap(requests.RoundTripper)
	url, stop, err := testenv.StartFacade(ctx, config, testfacade.Settings{
		Access: fixture.Access(config, auth.Options{}),
		Server: server.Options{Tracer: exporter.Tracer()},
	})
	Expect(err).NotTo(HaveOccurred())
	f.url = url
	isStopped := false
	f.stop = func() {
		if !isStopped {
			isStopped = true
			Expect(stop()).To(Succeed())
			exporter.Stop(context.WithoutCancel(ctx))
		}
	}
	DeferCleanup(f.stop)
	return f
}

// reads returns how many requests to read a lock were answered.
func (f *traced) reads() (count float64) {
	GinkgoHelper()
	families, err := f.requests.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, each := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range each.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if family.GetName() == metric.APIRequests.Name && labels["verb"] == "get" && labels["resource"] == "locks" {
				count += each.GetCounter().GetValue()
			}
		}
	}
	return count
}

// caller calls with a bearer token, in a trace of its own.
type caller struct{ url, token, traceID string }

// worker returns a caller with a service account of its own, which may do the verbs on locks.
func worker(ctx context.Context, url, name, traceID string, verbs ...string) caller {
	GinkgoHelper()
	admin := environment.Admin.Client
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	Expect(admin.Create(ctx, account)).To(Succeed())
	if len(verbs) > 0 {
		Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"locks"}, Verbs: verbs,
		}}})).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		})).To(Succeed())
	}
	for _, verb := range verbs {
		Eventually(func() (bool, error) { return mayUseLocks(ctx, name, verb) }).WithTimeout(patience).Should(BeTrue())
	}
	return caller{url, tokenOf(ctx, name), traceID}
}

// mayUseLocks reports whether the API server knows of the right of the service account already.
func mayUseLocks(ctx context.Context, name, verb string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks",
		},
	}}
	err := environment.Admin.Client.Create(ctx, review)
	return review.Status.Allowed, err
}

// tokenOf returns a token of the service account, for the audiences or, without any, that of the API server.
func tokenOf(ctx context.Context, name string, audiences ...string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// parentID is the span of every caller.
const parentID = "b7ad6b7169203331"

// httpClient calls façades on loopback addresses, whose certificates no authority of the system has signed.
var httpClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// do sends a request, with headers, name after value.
func (c caller) do(ctx context.Context, method, path, body string, headers ...string) (int, []byte) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader([]byte(body)))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	if c.traceID != "" {
		request.Header.Set("Traceparent", "00-"+c.traceID+"-"+parentID+"-01")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := httpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, text
}

// tree is what was received of one trace.
type tree []*collector.Span

func treeOf(received *collector.Collector, traceID string) (spans tree) {
	for _, span := range received.Spans() {
		if hex.EncodeToString(span.GetTraceId()) == traceID {
			spans = append(spans, span)
		}
	}
	return spans
}

// only returns the one span of the name.
func (t tree) only(name string) *collector.Span {
	GinkgoHelper()
	var found tree
	for _, span := range t {
		if span.GetName() == name {
			found = append(found, span)
		}
	}
	Expect(found).To(HaveLen(1), "spans %q among %v", name, t.names())
	return found[0]
}

// names returns each span as the names of its ancestors and its own, but for authentications: one that was
// quick has no span.
func (t tree) names() []string {
	var names []string
	for _, span := range t {
		if span.GetName() != "authenticate" {
			names = append(names, t.path(span))
		}
	}
	return names
}

// failed returns the errors of the spans with the name that have failed.
func (t tree) failed(name string) (messages []string) {
	for _, span := range t {
		if span.GetName() == name && span.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			messages = append(messages, span.GetStatus().GetMessage())
		}
	}
	return messages
}

func (t tree) path(span *collector.Span) string {
	for _, parent := range t {
		if bytes.Equal(parent.GetSpanId(), span.GetParentSpanId()) {
			return t.path(parent) + " > " + span.GetName()
		}
	}
	return span.GetName()
}

// storedLock is what is stored of the lock.
type storedLock struct{ owner, version string }

func (l *storedLock) read(ctx context.Context) {
	GinkgoHelper()
	var found v1alpha1.LockList
	Expect(environment.Admin.Client.List(ctx, &found, client.InNamespace(namespace))).To(Succeed())
	Expect(found.Items).To(HaveLen(1))
	l.owner = found.Items[0].Spec.Owner
	token, err := found.Items[0].FencingToken()
	Expect(err).NotTo(HaveOccurred())
	l.version = strconv.FormatInt(token, 10)
}
