package requestmetrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/observe/requestmetrics"
	"forrst.dev/lock-operator/test/support/exposition"
)

// roles are those of the operator's service accounts.
var roles = []string{"rbac/facade_role.yaml", "rbac/controllers_role.yaml", "rbac/webhook_role.yaml", "certificates/role.yaml", "guards/role.yaml"}

func TestEveryResourceOfTheRolesIsNamed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := requestmetrics.New(registry, clocktesting.NewFakeClock(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	transport := metrics.RoundTripper(&server{clocktesting.NewFakeClock(time.Unix(0, 0)), http.StatusOK})
	for _, rule := range rulesOf(t) {
		for _, resource := range rule.Resources {
			resource, _, _ = strings.Cut(resource, "/")
			path := "/apis/" + rule.APIGroups[0] + "/v1/namespaces/default/" + resource + "/x"
			if rule.APIGroups[0] == "" {
				path = "/api/v1/namespaces/default/" + resource + "/x"
			}
			response, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close() // It is empty.
			labels := map[string]string{"verb": "get", "resource": resource, "code": "200"}
			if _, isNamed := exposition.Value(registry, &metric.APIRequests, labels); !isNamed {
				t.Errorf("%s counts as another resource", path)
			}
		}
	}
}

// rulesOf returns the rules of all roles.
func rulesOf(t *testing.T) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, name := range roles {
		content, err := os.ReadFile("../../../config/" + name)
		if err != nil {
			t.Fatal(err)
		}
		before := len(rules)
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var role rbacv1.ClusterRole // Those of a namespace have the same rules, and bindings none.
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			rules = append(rules, role.Rules...)
		}
		if len(rules) == before {
			t.Errorf("%s has no rules", name)
		}
	}
	return rules
}

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
