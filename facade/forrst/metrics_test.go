package forrst_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestMetricsOfCalls(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	fails := func(code envelope.Code) forrst.Invocation {
		return func(context.Context) (any, error) { return nil, &envelope.Error{Code: code} }
	}
	f := newFixtureWith(t, func(config *testfacade.Settings) { config.Server.Metrics = registry },
		function("own", fails("MADE_UP_CODE")), function("conflict", fails(envelope.Conflict)), function("fine", result("1")))
	for _, body := range []string{
		envelopeWith(ping, "", ""), envelopeWith("forrst.ping", "", ""), envelopeWith("nothing like it", "", ""), "{", "[]",
		envelopeWith("own", "", ""), envelopeWith("conflict", "", ""), envelopeWith("fine", "", ""),
		envelopeWith(wire.Acquire, arguments(`"key":"k"`), ""), envelopeWith(wire.Acquire, arguments(`"key":"k"`), ""),
		envelopeWith("forrst.locks.status", arguments(`"key":"lock:k"`), ""), envelopeWith("forrst.locks.status", "", ""),
	} {
		f.post(body)
	}
	want := exposition.Of(&metric.FacadeCalls, `lock_operator_facade_calls_total{code="CONFLICT",door="forrst",function="routed"} 1
lock_operator_facade_calls_total{code="FUNCTION_NOT_FOUND",door="forrst",function="unknown"} 1
lock_operator_facade_calls_total{code="INVALID_ARGUMENTS",door="forrst",function="lock"} 1
lock_operator_facade_calls_total{code="INVALID_REQUEST",door="forrst",function="unknown"} 1
lock_operator_facade_calls_total{code="LOCK_ACQUISITION_FAILED",door="forrst",function="vendor"} 1
lock_operator_facade_calls_total{code="OK",door="forrst",function="lock"} 1
lock_operator_facade_calls_total{code="OK",door="forrst",function="routed"} 1
lock_operator_facade_calls_total{code="OK",door="forrst",function="system"} 2
lock_operator_facade_calls_total{code="OK",door="forrst",function="vendor"} 1
lock_operator_facade_calls_total{code="OTHER",door="forrst",function="routed"} 1
lock_operator_facade_calls_total{code="PARSE_ERROR",door="forrst",function="unknown"} 1
`)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "lock_operator_facade_calls_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
