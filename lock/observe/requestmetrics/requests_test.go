package requestmetrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe/requestmetrics"
	"forrst.dev/lock-operator/test/support/exposition"
)

// server answers with the status, or not at all if it is zero.
type server struct {
	clock  *clocktesting.FakeClock
	status int
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.clock.Step(30 * time.Millisecond)
	if s.status == 0 {
		return nil, errors.New("EOF")
	}
	return &http.Response{StatusCode: s.status, Body: http.NoBody}, nil
}

func TestRequestsAreCountedByWhatTheyAskFor(t *testing.T) {
	const locks, named = "/apis/forrst.dev/v1alpha1/namespaces/default/locks", "/apis/forrst.dev/v1alpha1/namespaces/default/locks/k"
	cases := map[string]struct {
		method, path   string
		verb, resource string
	}{
		"an acquire":               {http.MethodPost, locks, "create", "locks"},
		"a read":                   {http.MethodGet, named, "get", "locks"},
		"a list":                   {http.MethodGet, locks + "?limit=500", "list", "locks"},
		"a list of all namespaces": {http.MethodGet, "/apis/forrst.dev/v1alpha1/locks", "list", "locks"},
		"a watch":                  {http.MethodGet, "/apis/forrst.dev/v1alpha1/locks?resourceVersion=5&watch=true", "watch", "locks"},
		"a renewal":                {http.MethodPut, named, "update", "locks"},
		"a release":                {http.MethodDelete, named, "delete", "locks"},
		"a start of a Job":         {http.MethodPatch, "/apis/batch/v1/namespaces/default/jobs/j", "patch", "jobs"},
		"the status of a Job":      {http.MethodPatch, "/apis/batch/v1/namespaces/default/jobs/j/status", "patch", "jobs"},
		"a Pod":                    {http.MethodGet, "/api/v1/namespaces/default/pods/p", "get", "pods"},
		"a namespace":              {http.MethodGet, "/api/v1/namespaces/default", "get", "namespaces"},
		"a review":                 {http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", "create", "tokenreviews"},
		"a lock that is named so":  {http.MethodGet, locks + "/watch=true", "get", "locks"},
		"another kind of holder":   {http.MethodGet, "/apis/example.com/v1/namespaces/default/made-up/x", "get", "other"},
		"no resource":              {http.MethodGet, "/readyz", "get", "other"},
		"a path that ends early":   {http.MethodGet, "/apis/x", "get", "other"},
		"another method":           {http.MethodHead, "/version", "other", "other"},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			registry, clock := prometheus.NewPedanticRegistry(), clocktesting.NewFakeClock(time.Unix(0, 0))
			metrics, err := requestmetrics.New(registry, clock)
			if err != nil {
				t.Fatal(err)
			}
			for code, status := range map[string]int{"200": 200, "409": 409, "none": 0} {
				transport := metrics.RoundTripper(&server{clock, status})
				response, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), test.method, test.path, http.NoBody))
				if (err != nil) != (status == 0) {
					t.Fatal(err)
				}
				if err == nil {
					_ = response.Body.Close() // It is empty.
				}
				labels := map[string]string{"verb": test.verb, "resource": test.resource, "code": code}
				if got, _ := exposition.Value(registry, &metric.APIRequests, labels); got != 1 {
					t.Errorf("%v with the labels %v, want 1", got, labels)
				}
			}
			want := 2.0 // The third has no answer.
			if test.verb == "watch" {
				want = 0
			}
			got, _ := exposition.Value(registry, &metric.APIRequestDuration, map[string]string{"verb": test.verb, "resource": test.resource})
			if got != want {
				t.Errorf("%v requests were timed, want %v", got, want)
			}
			if count := testutil.CollectAndCount(registry, metric.APIRequests.Name); count != 3 {
				t.Errorf("%d series", count)
			}
		})
	}
}

func TestTheTransportCanBeUnwrapped(t *testing.T) {
	metrics, err := requestmetrics.New(prometheus.NewRegistry(), clocktesting.NewFakeClock(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	inner := &server{}
	if wrapper, ok := metrics.RoundTripper(inner).(utilnet.RoundTripperWrapper); !ok || wrapper.WrappedRoundTripper() != inner {
		t.Error("the transport below is hidden")
	}
}
