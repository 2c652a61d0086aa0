package forrst_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/pipes"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// useHTTP2 makes the client speak HTTP/2 without TLS. The connections that it opens are
// counted.
func (s *serving) useHTTP2(tb testing.TB) *atomic.Int32 {
	tb.Helper()
	opened := new(atomic.Int32)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s.client.Transport = &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			opened.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	return opened
}

var waiting = envelopeWith(wire.Acquire, arguments(`"key":"held","block":{"value":60}`), "")

// received is an answer by the network, or why there is none.
type received struct {
	envelope.Response

	status, major int
	header        http.Header
	// closes says that the connection takes no more calls.
	closes bool
	err    error
}

func (s *serving) receive(ctx context.Context, body string) received {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+forrst.Path, strings.NewReader(body))
	if err != nil {
		return received{err: err}
	}
	response, err := s.client.Do(request)
	if err != nil {
		return received{err: err}
	}
	defer response.Body.Close()
	got := received{status: response.StatusCode, major: response.ProtoMajor, header: response.Header, closes: response.Close}
	got.err = json.NewDecoder(response.Body).Decode(&got.Response)
	return got
}

// connect returns when a call went over a connection that was there before, and how many
// there are by then. The transport answers its first call a moment before it offers the
// connection to others, which open one more in between.
func (s *serving) connect(tb testing.TB, opened *atomic.Int32) int32 {
	tb.Helper()
	for range 100 {
		before := opened.Load()
		if got := s.receive(tb.Context(), envelopeWith(ping, "", "")); got.err != nil || got.status != 200 || got.major != 2 {
			tb.Fatalf("HTTP/%d, status %d, %v", got.major, got.status, got.err)
		}
		if before > 0 && opened.Load() == before {
			return before
		}
	}
	tb.Fatal("every call opens a connection")
	return 0
}

func newPatient(tb testing.TB, callers int) (*patientLocks, served) {
	tb.Helper()
	locks := &patientLocks{waiting: make(chan struct{}, callers)}
	return locks, served{Settings: testfacade.Settings{Locks: locks, Namespace: namespace}}
}

// wantBlocked lets callers wait over that many connections, and then stops the server.
func wantBlocked(t *testing.T, callers, connections int) {
	t.Helper()
	locks, patient := newPatient(t, callers)
	s := serve(t, patient, 10*time.Minute)
	answers := make(chan received, callers)
	opened, connected := make([]*atomic.Int32, connections), make([]int32, connections)
	for i := range connections {
		client := &serving{url: s.url, client: &http.Client{}}
		opened[i] = client.useHTTP2(t)
		t.Cleanup(client.client.CloseIdleConnections)
		connected[i] = client.connect(t, opened[i])
		for range callers / connections {
			go func() { answers <- client.receive(t.Context(), waiting) }()
		}
	}
	for range callers {
		<-locks.waiting
	}
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.status != 200 {
		t.Errorf("besides those that wait: status %d, %v", got.status, got.err)
	}
	s.stop()
	for range callers {
		got := <-answers
		if got.err != nil || got.status != 503 || got.header.Get("Retry-After") != "1" {
			t.Fatalf("status %d, headers %v, %v", got.status, got.header, got.err)
		}
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	for i, each := range opened {
		if more := each.Load() - connected[i]; more != 0 {
			t.Errorf("a client opened %d more connections for callers that wait", more)
		}
	}
}

func TestThousandCallersWaitOnOneConnection(t *testing.T) { wantBlocked(t, 1000, 1) }

// A call whose client has reset its stream keeps no connection, but the server must not
// stop before it has released its lock.
func TestServerWaitsForStreamsThatWereReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, isReleased := make(chan struct{}), false
		f := newFixture(t, function("f", func(ctx context.Context) (any, error) {
			close(running)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		f.before[locktest.Release] = func(ctx context.Context) error {
			time.Sleep(10 * time.Second) //nolint:forbidigo // Only the fake clock of the bubble moves.
			isReleased = true
			return ctx.Err()
		}
		listener := pipes.Listen()
		serverCtx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.listening(listener).Start(serverCtx) }()
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return listener.Connect(), nil
		}}
		s := &serving{url: "http://x", client: &http.Client{Transport: transport}}
		ctx, disconnect := context.WithCancel(t.Context())
		answered := make(chan received, 1)
		go func() { answered <- s.receive(ctx, envelopeWith("f", "", locked(`{"key":"k",`+ttl+`}`))) }()
		<-running
		disconnect()
		if got := <-answered; !errors.Is(got.err, context.Canceled) {
			t.Errorf("status %d, %v", got.status, got.err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !isReleased {
			t.Error("stopped before the release")
		}
		f.wantHeld()
		transport.CloseIdleConnections()
	})
}
