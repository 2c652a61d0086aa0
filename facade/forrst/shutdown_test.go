package forrst_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/server"
)

func (s *serving) probe(ctx context.Context, path string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		return 0
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// stoppable is a façade with a call that waits and one that runs.
type stoppable struct {
	*fixture
	*serving

	t           *testing.T
	clock       *clocktesting.FakeClock
	finish      chan struct{}
	waits, runs chan received
}

func newStoppable(t *testing.T) *stoppable {
	t.Helper()
	begun := make(chan struct{})
	s := &stoppable{
		t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
		finish: make(chan struct{}), waits: make(chan received, 1), runs: make(chan received, 1),
	}
	s.fixture = newFixture(t, function("f", func(ctx context.Context) (any, error) {
		begun <- struct{}{}
		<-s.finish
		return nil, ctx.Err()
	}))
	s.joined = func(context.Context) error {
		begun <- struct{}{}
		return nil
	}
	s.hold("held", "other", time.Hour)
	if s.Ready(nil) == nil {
		t.Error("ready before the start")
	}
	s.serving = serveWith(t, server.Options{ShutdownDelay: 5 * time.Second, DrainTimeout: time.Minute, Clock: s.clock}, s.served)
	go func() { s.waits <- s.receive(t.Context(), waiting) }()
	<-begun
	go func() { s.runs <- s.receive(t.Context(), envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`))) }()
	<-begun
	return s
}

func (s *stoppable) wantReady(want bool) {
	s.t.Helper()
	err, status := s.server.Ready(nil), s.probe(s.t.Context(), "/readyz")
	if (err == nil) != want || (status == http.StatusOK) != want {
		s.t.Errorf("ready, want %t: %v, status %d", want, err, status)
	}
	if status := s.probe(s.t.Context(), "/healthz"); status != http.StatusOK {
		s.t.Errorf("/healthz has status %d", status)
	}
}

// First the server is not ready, then no call waits any more, and at last no call runs.
func TestOrderOfShutdown(t *testing.T) {
	s := newStoppable(t)
	s.wantReady(true)
	s.stop()
	for !s.clock.HasWaiters() {
		continue
	}
	s.wantReady(false)
	got := s.receive(t.Context(), envelopeWith(ping, "", locked(`{"key":"other",`+ttl+`}`)))
	if got.status != 200 || !got.closes {
		t.Errorf("a call during the delay: status %d, headers %v, %v", got.status, got.header, got.err)
	}
	select {
	case got := <-s.waits:
		t.Errorf("clients have not moved to another replica yet, but a waiting call got status %d", got.status)
	default:
	}

	s.clock.Step(5 * time.Second)
	if got := <-s.waits; got.status != 503 || got.header.Get("Retry-After") != "1" {
		t.Errorf("the call that waits: status %d, headers %v, %v", got.status, got.header, got.err)
	}
	select {
	case err := <-s.ended:
		t.Fatalf("stopped while a call runs: %v", err)
	default:
	}
	close(s.finish)
	if got := <-s.runs; got.status != 200 || !got.closes {
		t.Errorf("the call that runs: status %d, headers %v, %v", got.status, got.header, got.err)
	}
	s.wantEnd(t)
	s.wantHeld("lock:held")
	if s.server.Ready(nil) == nil || s.probe(t.Context(), "/healthz") != 0 {
		t.Error("still there after the end")
	}
}
