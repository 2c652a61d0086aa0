package rest_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"forrst.dev/lock-operator/test/support/testfacade"
)

// TestACallKeepsItsConnection opens another connection of the address, which has one place, during a stream.
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+report+"?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", response, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	events := bufio.NewScanner(response.Body)
	await := func(name string) {
		t.Helper()
		for events.Scan() {
			if events.Text() == "event: "+name {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", name, events.Err())
	}
	await("sync")
	another, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = another.Close() }()
	if _, err := another.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("another connection of the address was opened: %v", err)
	}
	f.acquire(report, `{"ttl_seconds":60}`)
	await("acquired")
}
