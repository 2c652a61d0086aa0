package forrst_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// serving is a server on a real listener.
type serving struct {
	server   *server.Server
	listener net.Listener
	url      string
	stop     context.CancelFunc
	ended    chan error
	client   *http.Client
}

func serve(tb testing.TB, served served, drain time.Duration) *serving {
	tb.Helper()
	return serveWith(tb, server.Options{DrainTimeout: drain}, served)
}

// serveWith starts a façade with the options and a listener.
func serveWith(tb testing.TB, options server.Options, served served) *serving {
	tb.Helper()
	var err error
	options.Listener, err = new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server, err := served.build(options)
	if err != nil {
		tb.Fatal(err)
	}
	if server.NeedLeaderElection() {
		tb.Error("every replica must serve")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	tb.Cleanup(stop)
	s := &serving{server: server, listener: options.Listener, url: "http://" + options.Listener.Addr().String(), stop: stop, ended: make(chan error, 1), client: &http.Client{}}
	tb.Cleanup(func() { s.client.CloseIdleConnections() })
	go func() { s.ended <- server.Start(ctx) }()
	return s
}

// wantEnd stops the server.
func (s *serving) wantEnd(tb testing.TB) {
	tb.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		tb.Error(err)
	}
}

// post returns the status of the answer, or 0 if there was none.
func (s *serving) post(ctx context.Context, body string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+forrst.Path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestServerCancelsCallsThatOutlastTheDrainAndReleasesTheirLocks(t *testing.T) {
	running := make(chan struct{})
	f := newFixture(t, function("f", func(ctx context.Context) (any, error) {
		close(running)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	s := serve(t, f.served, time.Millisecond)
	answered := make(chan received, 1)
	go func() { answered <- s.receive(t.Context(), envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`))) }()
	<-running
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if got := <-answered; got.status != 499 || len(got.Errors) != 1 || got.Errors[0].Message != "The server stopped before the call was over" {
		t.Errorf("the call got status %d, %v, %v", got.status, got.Errors, got.err)
	}
	f.wantHeld()
}

func TestServerReleasesTheLockOfAClientThatDisconnects(t *testing.T) {
	running, released := make(chan struct{}), make(chan struct{})
	f := newFixture(t, function("f", func(ctx context.Context) (any, error) {
		close(running)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	f.before[locktest.Release] = func(ctx context.Context) error {
		close(released)
		return ctx.Err()
	}
	s := serve(t, f.served, time.Minute)
	ctx, disconnect := context.WithCancel(t.Context())
	go s.post(ctx, envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`)))
	<-running
	disconnect()
	<-released
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	f.wantHeld()
}

// Whatever ends the server, calls that run have locks to release.
func TestServerFinishesRunningCallsWhenItsListenerBreaks(t *testing.T) {
	running, finish := make(chan struct{}), make(chan struct{})
	f := newFixture(t, function("f", func(context.Context) (any, error) {
		close(running)
		<-finish
		return nil, nil
	}))
	s := serve(t, f.served, time.Minute)
	answered := make(chan int, 1)
	go func() { answered <- s.post(t.Context(), envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`))) }()
	<-running
	if err := s.listener.Close(); err != nil {
		t.Fatal(err)
	}
	for s.server.Ready(nil) == nil {
		continue
	}
	close(finish)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the call got status %d", status)
	}
	if err := <-s.ended; err == nil {
		t.Error("no error")
	}
	f.wantHeld()
}

// TestConnectionsAreBounded has a call wait on the only connection that there may be.
func TestConnectionsAreBounded(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "alice", time.Hour)
	began := f.letCallsWait()
	s := serveWith(t, server.Options{DrainTimeout: time.Minute, MaxConnections: 1}, f.served)
	first := dial(t, s)
	writeCall(t, first, envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":30}`), ""))
	<-began
	if status := s.post(t.Context(), envelopeWith(ping, "", "")); status != 0 {
		t.Fatalf("a second connection got status %d", status)
	}
	if err := f.locks.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "alice"}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for s.post(t.Context(), envelopeWith(ping, "", "")) != http.StatusOK { // The call ends after its answer.
		if t.Context().Err() != nil {
			t.Fatal("an idle connection makes no room")
		}
	}
	s.wantEnd(t)
}

func writeCall(tb testing.TB, connection net.Conn, body string) {
	tb.Helper()
	if _, err := fmt.Fprintf(connection, "POST /forrst HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		tb.Fatal(err)
	}
}
