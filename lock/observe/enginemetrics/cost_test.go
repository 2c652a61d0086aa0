package enginemetrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/observe/enginemetrics"
	"forrst.dev/lock-operator/lock/observe/requestmetrics"
)

// instant answers at once.
type instant struct{ response *http.Response }

func (i instant) RoundTrip(*http.Request) (*http.Response, error) { return i.response, nil }

// BenchmarkObserving measures what it takes to observe an acquire and a release: the grant, its door, and two
// requests to the API server.
func BenchmarkObserving(b *testing.B) {
	registry := prometheus.NewRegistry()
	metrics, err := enginemetrics.New(registry)
	if err != nil {
		b.Fatal(err)
	}
	requests, err := requestmetrics.New(registry, clock.RealClock{})
	if err != nil {
		b.Fatal(err)
	}
	observer, count := metrics.Observer(audit.Facade), metrics.CountDoor("rest")
	transport := requests.RoundTripper(instant{&http.Response{StatusCode: http.StatusOK, Body: http.NoBody}})
	const path = "/apis/forrst.dev/v1alpha1/namespaces/default/locks"
	create := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, http.NoBody)
	remove := httptest.NewRequestWithContext(b.Context(), http.MethodDelete, path+"/k", http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		for _, request := range []*http.Request{create, remove} {
			response, err := transport.RoundTrip(request)
			if err != nil {
				b.Fatal(err)
			}
			_ = response.Body.Close() // It is empty.
		}
		observer.Granted(4*time.Millisecond, false)
		count(observe.Granted)
	}
}
