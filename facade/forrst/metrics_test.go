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
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
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

func TestMetricsOfCallsThatAreServed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	c := newCrowdWith(t, func(config *testfacade.Settings) { config.Server.Metrics = registry })
	want := func(served string) {
		t.Helper()
		help := exposition.Of(&metric.FacadeRunningCalls, "") + exposition.Of(&metric.FacadeWaitingCalls, "")
		err := testutil.GatherAndCompare(registry, strings.NewReader(help+served),
			"lock_operator_facade_running_calls", "lock_operator_facade_waiting_calls")
		if err != nil {
			t.Error(err)
		}
	}
	c.hold("held", "other", 1e12)
	c.begin(anAddress, waiting)
	c.begin(anAddress, waiting)
	c.begin(anAddress, running)
	want("lock_operator_facade_running_calls 1\nlock_operator_facade_waiting_calls 2\n")
	c.finish <- struct{}{}
	<-c.answers
	for _, owner := range []string{"other", generated} {
		if err := c.locks.Release(t.Context(), namespace, "lock:held", lock.Proof{Owner: owner}); err != nil {
			t.Fatal(err)
		}
		<-c.answers
	}
	want("lock_operator_facade_running_calls 0\nlock_operator_facade_waiting_calls 0\n")
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFixture(t)
	config := testfacade.Settings{Locks: f.locks, Namespace: namespace, Server: server.Options{Metrics: registry}}
	if _, err := testfacade.New(config); err != nil {
		t.Error(err)
	}
	if _, err := testfacade.New(config); err == nil {
		t.Error("the metrics of two handlers cannot be told apart, but there is no error")
	}
}
