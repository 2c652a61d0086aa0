package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secondDoor is the least that a door can be: its calls wait until the server stops.
type secondDoor struct {
	server  *server.Server
	metrics server.Metrics
	waiting chan struct{}
	// leftBehind ends when the background has finished what a call left behind.
	leftBehind chan struct{}
}

// Register implements [server.Door].
func (d *secondDoor) Register(mux *http.ServeMux) { mux.HandleFunc("POST /second", d.serve) }

func (d *secondDoor) serve(w http.ResponseWriter, r *http.Request) {
	err := d.wait(r)
	status, code := http.StatusOK, "OK"
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		status, code = http.StatusServiceUnavailable, "UNAVAILABLE"
		if refused.IsCaller {
			status, code = http.StatusTooManyRequests, "RATE_LIMITED"
		}
	}
	server.BeginAnswer(w, r)
	d.metrics.Observe("wait", code, 0)
	w.WriteHeader(status)
}

func (d *secondDoor) wait(r *http.Request) error {
	permit, err := d.server.Limiter().Admit(limits.CallerOf(r, access.Anonymous))
	if err != nil {
		return err
	}
	defer permit.Release()
	if err := permit.Begin(r.Context(), limits.Work, 0); err != nil {
		return err
	}
	return permit.Wait(r.Context(), func(ctx context.Context) error {
		d.waiting <- struct{}{}
		<-ctx.Done()
		d.server.Background().Run(func(context.Context) { close(d.leftBehind) })
		return ctx.Err()
	})
}

// twoDoors is a server with the Forrst door, whose lock is held, and a second one.
type twoDoors struct {
	t      *testing.T
	url    string
	locks  *locktest.Backend
	second *secondDoor
	// forrstWaits gets a value for each call of the Forrst door that begins to wait.
	forrstWaits chan struct{}
	registry    *prometheus.Registry
	client      http.Client
	stop        context.CancelFunc
	ended       chan error
}

func openTwoDoors(t *testing.T, bounds limits.Limits) *twoDoors {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &twoDoors{t: t, url: "http://" + listener.Addr().String(), locks: locktest.New(), forrstWaits: make(chan struct{}, 1), registry: prometheus.NewPedanticRegistry(), ended: make(chan error, 1)}
	_, err = d.locks.Acquire(t.Context(), "default", lock.Request{Acquisition: rules.Acquisition{Key: "held", TTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	d.locks.SetHooks(locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
		d.forrstWaits <- struct{}{}
		return nil
	}})
	served, err := testfacade.New(testfacade.Settings{
		Locks: d.locks, Namespace: "default",
		Server: server.Options{Listener: listener, Limits: bounds, Metrics: d.registry, DrainTimeout: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.second = &secondDoor{server: served, metrics: served.Metrics("second"), waiting: make(chan struct{}, 1), leftBehind: make(chan struct{})}
	served.Mount(d.second)
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { d.ended <- served.Start(ctx) }()
	t.Cleanup(d.stop)
	t.Cleanup(d.client.CloseIdleConnections)
	return d
}

// post returns the status of the answer, or 0 if there is none.
func (d *twoDoors) post(path, body string) int {
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	response, err := d.client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // The status says enough.
	return response.StatusCode
}

func (d *twoDoors) postForrst() int {
	return d.post("/forrst", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"urn:k8s:forrst:ext:atomic-lock:fn:acquire","arguments":{"key":"held","block":{"value":30}}}}`)
}

func (d *twoDoors) postSecond() int { return d.post("/second", "") }

// begin makes a call and returns when it waits.
func (d *twoDoors) begin(post func() int) <-chan int {
	answered := make(chan int, 1)
	go func() { answered <- post() }()
	return answered
}

func (d *twoDoors) awaitForrst() { <-d.forrstWaits }

func TestACallerThatIsAtItsLimitAtOneDoorIsRefusedAtTheOther(t *testing.T) {
	t.Run("Forrst first", func(t *testing.T) {
		d := openTwoDoors(t, limits.Limits{InFlight: limits.DefaultShares})
		waits := d.begin(d.postForrst)
		d.awaitForrst()
		if status := d.postSecond(); status != http.StatusTooManyRequests {
			t.Errorf("the second door: status %d", status)
		}
		d.stop()
		<-waits
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("the second door first", func(t *testing.T) {
		d := openTwoDoors(t, limits.Limits{InFlight: limits.DefaultShares})
		waits := d.begin(d.postSecond)
		<-d.second.waiting
		if status := d.postForrst(); status != http.StatusTooManyRequests {
			t.Errorf("the Forrst door: status %d", status)
		}
		d.stop()
		<-waits
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOneDrainEndsTheWaitsOfAllDoors(t *testing.T) {
	d := openTwoDoors(t, limits.Limits{})
	forrst, second := d.begin(d.postForrst), d.begin(d.postSecond)
	d.awaitForrst()
	<-d.second.waiting
	d.stop()
	if status := <-forrst; status != http.StatusServiceUnavailable {
		t.Errorf("the Forrst door: status %d", status)
	}
	if status := <-second; status != http.StatusServiceUnavailable {
		t.Errorf("the second door: status %d", status)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	select {
	case <-d.second.leftBehind:
	default:
		t.Error("the server stopped before what a call left behind was finished")
	}
}

func TestDoorsShareOneRegistrationOfMetrics(t *testing.T) {
	d := openTwoDoors(t, limits.Limits{})
	forrst, second := d.begin(d.postForrst), d.begin(d.postSecond)
	d.awaitForrst()
	<-d.second.waiting
	waiting := exposition.Of(&metric.FacadeWaitingCalls, `lock_operator_facade_waiting_calls 2
`)
	if err := testutil.GatherAndCompare(d.registry, strings.NewReader(waiting), "lock_operator_facade_waiting_calls"); err != nil {
		t.Error(err)
	}
	d.stop()
	<-forrst
	<-second
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	calls := exposition.Of(&metric.FacadeCalls, `lock_operator_facade_calls_total{code="UNAVAILABLE",door="forrst",function="vendor"} 1
lock_operator_facade_calls_total{code="UNAVAILABLE",door="second",function="wait"} 1
`)
	if err := testutil.GatherAndCompare(d.registry, strings.NewReader(calls), "lock_operator_facade_calls_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(d.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
