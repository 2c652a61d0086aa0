package rest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"forrst.dev/lock-operator/test/support/testfacade"
)

// TestACallKeepsItsConnection opens another connection of the address, which has one place.
func TestACallKeepsItsConnection(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Server.Listener, s.Server.MaxConnections, s.Server.MaxConnectionsPerAddress = listener, 10, 1
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var connections []net.Conn
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, kind, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, kind, address)
			connections = append(connections, connection)
			return connection, err
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	call := func() {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+allLocks, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %d", response.StatusCode)
		}
	}
	call()
	another, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = another.Close() }()
	if _, err := another.Read(make([]byte, 1)); err == nil {
		t.Error("another connection of the address was opened")
	}
	call()
	if len(connections) != 1 {
		t.Errorf("%d connections were needed", len(connections))
	}
}
