package server_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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
	// answers are those that the client has read.
	answers *bufio.Reader
	ended   chan error
}

// stopAfterAnAnswer returns when the server has ended the connection, before its client has.
func stopAfterAnAnswer(t *testing.T, options server.Options) *ending {
	t.Helper()
	var err error
	if options.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	e := &ending{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)), ended: make(chan error, 1)}
	options.Clock = e.clock
	served, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	served.Mount(door{})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	go func() { e.ended <- served.Start(ctx) }()
	if e.client, err = new(net.Dialer).DialContext(t.Context(), "tcp", options.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.client.Close() })
	e.call()
	stop()
	for served.Ready(nil) == nil {
		runtime.Gosched()
	}
	if options.ShutdownDelay > 0 {
		e.call()
	}
	if _, err := io.Copy(io.Discard, e.client); err != nil {
		t.Fatal(err)
	}
	return e
}

// door answers each call at once.
type door struct{}

// Register implements [server.Door].
func (door) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /call", func(w http.ResponseWriter, r *http.Request) {
		server.BeginAnswer(w, r)
		w.WriteHeader(http.StatusNoContent)
	})
}

// call makes a call, and reads the beginning of its answer.
func (e *ending) call() {
	e.t.Helper()
	e.write("GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n")
	e.answers = cmp.Or(e.answers, bufio.NewReader(e.client))
	response, err := http.ReadResponse(e.answers, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		e.t.Fatal(response.Status)
	}
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
	for name, delay := range map[string]time.Duration{"when it drains": 0, "before": time.Minute} {
		t.Run(name, func(t *testing.T) {
			e := stopAfterAnAnswer(t, server.Options{ShutdownDelay: delay})
			for range 10 {
				e.write("late")
			}
			if _, err := e.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			_ = e.client.Close()
			for len(e.ended) == 0 {
				e.clock.Step(delay)
				runtime.Gosched()
			}
			e.wantEnd()
		})
	}
}

func TestAServerThatStopsWaitsForClientsOnlySoLong(t *testing.T) {
	e := stopAfterAnAnswer(t, server.Options{})
	for len(e.ended) == 0 {
		e.clock.Step(server.LingerTimeout)
		runtime.Gosched()
	}
	e.wantEnd()
	for { // It is closed.
		if _, err := io.WriteString(e.client, "late"); err != nil {
			return
		}
	}
}
