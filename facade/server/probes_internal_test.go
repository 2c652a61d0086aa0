package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

func TestSaturationIsToldAndDoesNotEndReadiness(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	registry := prometheus.NewPedanticRegistry()
	s, err := New(Options{Clock: fake, Limits: limits.Limits{InFlight: 1}, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	probe := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	want := func(title string, status int, text string) {
		t.Helper()
		if gotStatus, gotText := probe("/readyz/saturation"); gotStatus != status || gotText != text {
			t.Errorf("%s: %d %s", title, gotStatus, gotText)
		}
		if status, _ := probe("/readyz"); status != http.StatusOK {
			t.Errorf("%s: the replica is not ready: %d", title, status)
		}
	}
	want("idle", http.StatusOK, "ok")
	permit, err := s.Limiter().Admit(limits.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	fake.Step(saturatedAfter - time.Millisecond)
	want("for a moment", http.StatusOK, "ok")
	fake.Step(time.Millisecond)
	want("for some seconds", http.StatusServiceUnavailable, "saturated: in_flight")
	exposed := exposition.Of(&metric.FacadeSaturated, `lock_operator_facade_saturated_seconds{limit="in_flight"} 3
`)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(exposed), metric.FacadeSaturated.Name); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	permit.Release()
	want("afterwards", http.StatusOK, "ok")
}
