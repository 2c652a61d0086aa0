package tracing_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"forrst.dev/lock-operator/tracing"
)

func TestWithoutATracerNothingCosts(t *testing.T) {
	var off *tracing.Tracer
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	ctx, failure := t.Context(), errors.New("failed")
	allocations := testing.AllocsPerRun(100, func() {
		call := off.Arrive("rest", request)
		call.BeginAuthentication()
		call.EndAuthentication(failure)
		wait := off.BeginWait(call.Begin(ctx, tracing.Parent{}), "payments", "lock:k")
		off.EndedBy(wait, off.Within(ctx, wait))
		off.EndWait(wait, nil)
		call.End(ctx, tracing.Result{})
		if wait != ctx {
			t.Error("another context")
		}
	})
	if allocations != 0 {
		t.Errorf("%g allocations", allocations)
	}
	if wrapped := off.RoundTripper(http.DefaultTransport); wrapped != http.DefaultTransport {
		t.Error("requests go through a round tripper")
	}
}
