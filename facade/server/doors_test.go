package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/test/support/pipes"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One drain ends the waits of all doors, which have their metrics in one registration.
func TestOneDrainEndsTheWaitsOfAllDoors(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	d := openDoors(t, func(s *testfacade.Settings) {
		s.Server = server.Options{Listener: listener, Metrics: registry, DrainTimeout: time.Minute}
	})
	d.hold("held")
	waits := make(chan struct{})
	d.locks.SetHooks(locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
		waits <- struct{}{}
		return nil
	}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Start(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	post := func(door string) <-chan int {
		statuses := make(chan int, 1)
		method, path, body := doorways[door].request(ask{verb: "acquire", key: "held", wait: "30"})
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer token-of-alice")
		go func() {
			response, err := client.Do(request)
			if err != nil {
				statuses <- 0
				return
			}
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body) // The status says enough.
			statuses <- response.StatusCode
		}()
		<-waits
		return statuses
	}
	want := func(metrics string, of *metric.Definition) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(exposition.Of(of, metrics)), of.Name); err != nil {
			t.Error(err)
		}
	}
	forrst, rest := post("forrst"), post("rest")
	want("lock_operator_facade_waiting_calls 2\n", &metric.FacadeWaitingCalls)
	want("lock_operator_facade_running_calls 0\n", &metric.FacadeRunningCalls)
	stop()
	if first, second := <-forrst, <-rest; first != http.StatusServiceUnavailable || second != http.StatusServiceUnavailable {
		t.Errorf("status %d at the Forrst door, %d at the REST door", first, second)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want("lock_operator_facade_waiting_calls 0\n", &metric.FacadeWaitingCalls)
	want(`lock_operator_facade_calls_total{code="UNAVAILABLE",door="forrst",function="vendor"} 1
lock_operator_facade_calls_total{code="unavailable",door="rest",function="acquire"} 1
`, &metric.FacadeCalls)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if _, err := server.New(server.Options{Metrics: registry}); err == nil {
		t.Error("the metrics of two servers cannot be told apart, but there is no error")
	}
}

func TestAServerStopsWhenWhatCallsHaveLeftBehindIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served, err := server.New(server.Options{Listener: pipes.Listen()})
		if err != nil {
			t.Fatal(err)
		}
		goOn, ended := make(chan struct{}), make(chan error, 1)
		served.Background().Run(func(context.Context) { <-goOn })
		ctx, stop := context.WithCancel(t.Context())
		stop()
		go func() { ended <- served.Start(ctx) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the server has stopped before")
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
