package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
)

// serveMetricsPort returns the address of a port that serves the handler.
func serveMetricsPort(t *testing.T, handler http.Handler) string {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := newMetricsServer(inner, handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- port.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return inner.Addr().String()
}

func connectToMetrics(ctx context.Context, address string) (net.Conn, error) {
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The certificate is made for this process.
	return dialer.DialContext(ctx, "tcp", address)
}

func TestConnectionsForMetricsAreBounded(t *testing.T) {
	address := serveMetricsPort(t, http.NotFoundHandler())
	open := make([]net.Conn, maxMetricsConnectionsOfNetwork)
	for i := range open {
		var err error
		if open[i], err = connectToMetrics(t.Context(), address); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		t.Cleanup(func() { _ = open[i].Close() })
	}
	if more, err := connectToMetrics(t.Context(), address); err == nil {
		_ = more.Close()
		t.Errorf("one network has more than %d connections", maxMetricsConnectionsOfNetwork)
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil { // The server learns of the end a moment later.
		if next, err := connectToMetrics(t.Context(), address); err == nil {
			_ = next.Close()
			break
		}
	}
}

func TestClientsWithoutTheRightToMetricsKeepNoConnection(t *testing.T) {
	handler, _, _ := serveMetrics(t)
	address := serveMetricsPort(t, handler)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // As above.
	}}
	t.Cleanup(client.CloseIdleConnections)
	for _, test := range []struct {
		path, token string
		isClosed    bool
	}{
		{"/metrics", "scraper", false}, {"/metrics", "stranger", true}, {"/metrics", "invalid", true}, {"/metrics", "", true}, {"/", "scraper", true},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.Close != test.isClosed {
			t.Errorf("%s of %q: status %d closes the connection: %t, want %t", test.path, test.token, answer.StatusCode, answer.Close, test.isClosed)
		}
	}
}
