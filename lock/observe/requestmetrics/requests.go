// Package requestmetrics counts and times the requests of a process to the API server.
package requestmetrics

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/metric"
)

// other stands for verbs and resources that are not among the known ones, so that no path makes a series.
const other = "other"

const watchVerb = "watch"

// unanswered is the code of a request without an answer.
const unanswered = "none"

// resources are those of the roles of the operator.
var resources = map[string]bool{
	"locks": true, "leases": true, "events": true, "jobs": true, "pods": true, "namespaces": true, "deployments": true, "statefulsets": true,
	"tokenreviews": true, "subjectaccessreviews": true, "selfsubjectreviews": true,
	"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true, "secrets": true, "configmaps": true, "endpointslices": true,
}

// Metrics counts requests. Safe for concurrent use.
type Metrics struct {
	clock    clock.PassiveClock
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// New registers the metrics. The clock measures durations.
func New(registerer prometheus.Registerer, clock clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{clock: clock, requests: metric.APIRequests.CounterVec(), duration: metric.APIRequestDuration.HistogramVec(nil)}
	return m, metric.Register(registerer, m.requests, m.duration)
}

// RoundTripper counts the requests that next makes, for [k8s.io/client-go/rest.Config.Wrap].
func (m *Metrics) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{metrics: m, next: next}
}

type roundTripper struct {
	metrics *Metrics
	next    http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// RoundTrip implements [http.RoundTripper].
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	began := r.metrics.clock.Now()
	response, err := r.next.RoundTrip(request)
	verb, resource := classOf(request)
	code := unanswered
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
		if verb != watchVerb {
			r.metrics.duration.WithLabelValues(verb, resource).Observe(r.metrics.clock.Since(began).Seconds())
		}
	}
	r.metrics.requests.WithLabelValues(verb, resource, code).Inc()
	return response, err
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// classOf returns the verb and the resource of a request, each one of a bounded number of texts.
func classOf(request *http.Request) (verb, resource string) {
	resource, isNamed := resourceOf(request.URL.Path)
	switch request.Method {
	case http.MethodGet:
		switch query := request.URL.RawQuery; {
		case isNamed || resource == other:
			return "get", resource
		case strings.Contains(query, "watch=true"), strings.Contains(query, "watch=1"):
			return watchVerb, resource
		}
		return "list", resource
	case http.MethodPost:
		return "create", resource
	case http.MethodPut:
		return "update", resource
	case http.MethodPatch:
		return "patch", resource
	case http.MethodDelete:
		return "delete", resource
	}
	return other, resource
}

// resourceOf returns the resource of a path such as /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME,
// and whether the path names an object.
func resourceOf(path string) (resource string, isNamed bool) {
	rest, isCore := strings.CutPrefix(path, "/api/v1/")
	if !isCore {
		var isGroup bool
		if rest, isGroup = strings.CutPrefix(path, "/apis/"); !isGroup {
			return other, false
		}
		_, rest, _ = strings.Cut(rest, "/") // The group.
		_, rest, _ = strings.Cut(rest, "/") // The version.
	}
	if inNamespace, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		if _, below, ok := strings.Cut(inNamespace, "/"); ok {
			rest = below
		}
	}
	resource, name, _ := strings.Cut(rest, "/")
	if !resources[resource] {
		return other, name != ""
	}
	return resource, name != ""
}
