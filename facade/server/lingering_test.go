package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/server"
)

// ending is a server that stops, and the connection of a client that it has answered.
type ending struct {
	t      *testing.T
	clock  *clocktesting.FakeClock
	client net.Conn
	ended  chan error
}

// stopAfterAnAnswer returns when the server has ended the connection, before the client has read anything.
func stopAfterAnAnswer(t *testing.T) *ending {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &ending{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)), ended: make(chan error, 1)}
	served, err := server.New(server.Options{Listener: listener, Clock: e.clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	go func() { e.ended <- served.Start(ctx) }()
	if e.client, err = new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.client.Close() })
	e.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	status := make([]byte, len("HTTP/1.1 200 OK"))
	if _, err := io.ReadFull(e.client, status); err != nil || string(status) != "HTTP/1.1 200 OK" {
		t.Fatalf("%q, %v", status, err)
	}
	stop()
	if _, err := io.Copy(io.Discard, e.client); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ending) write(text string) {
	e.t.Helper()
	if _, err := io.WriteString(e.client, text); err != nil {
		e.t.Fatal(err)
	}
}

// wantEnd expects that the server returns.
func (e *ending) wantEnd() {
	e.t.Helper()
	if err := <-e.ended; err != nil {
		e.t.Error(err)
	}
}

// A client learns by the answer to what it writes that a connection is closed, and by its next try to write.
func TestAServerThatStopsBreaksNoConnection(t *testing.T) {
	e := stopAfterAnAnswer(t)
	for range 10 {
		e.write("late")
	}
	if _, err := e.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	_ = e.client.Close()
	e.wantEnd()
}

func TestAServerThatStopsWaitsForClientsOnlySoLong(t *testing.T) {
	e := stopAfterAnAnswer(t)
	for len(e.ended) == 0 {
		e.clock.Step(server.LingerTimeout)
		runtime.Gosched()
	}
	e.wantEnd()
	var err error
	for range 2 {
		_, err = io.WriteString(e.client, "late")
	}
	if err == nil {
		t.Error("the connection is still open")
	}
}
