package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// serveMetricsPort returns the address of a port that serves the handler.
func serveMetricsPort(t *testing.T, handler http.Handler) string {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := newMetricsServer(inner, handler, nil, logr.Discard())
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
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	return dialer.DialContext(ctx, "tcp", address)
}

// wantClosed checks that the server has closed a connection on which it sends nothing.
func wantClosed(t *testing.T, of net.Conn) {
	t.Helper()
	// Later it ends in any case.
	_ = of.SetReadDeadline(time.Now().Add(metricsRequestTimeout / 2))
	if _, err := of.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is not closed: %v", err)
	}
}

// TestAConnectionWithMetricsKeepsItsPlace opens more connections of its network than there may be.
func TestAConnectionWithMetricsKeepsItsPlace(t *testing.T) {
	handler, _, _ := serveMetrics(t)
	address := serveMetricsPort(t, handler)
	var dialed int
	client := &http.Client{Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		dialed++
		return connectToMetrics(ctx, address)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	scrape := func() {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+metricsPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer scraper")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("status %d", answer.StatusCode)
		}
	}
	scrape()
	open := make([]net.Conn, maxMetricsConnectionsOfNetwork)
	for i := range open {
		var err error
		if open[i], err = connectToMetrics(t.Context(), address); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		t.Cleanup(func() { _ = open[i].Close() })
	}
	wantClosed(t, open[0])
	scrape()
	if dialed != 1 {
		t.Errorf("%d connections were needed", dialed)
	}
}

// TestConnectionsForMetricsGiveWayToThoseOfOtherNetworks opens as many connections as there may be, from four networks.
func TestConnectionsForMetricsGiveWayToThoseOfOtherNetworks(t *testing.T) {
	handler, _, _ := serveMetrics(t)
	address := serveMetricsPort(t, handler)
	open := func(number int) net.Conn {
		t.Helper()
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(number))}}
		made, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = made.Close() })
		return made
	}
	all := make([]net.Conn, maxMetricsConnections)
	for number := range all {
		all[number] = open(1 + number/maxMetricsConnectionsOfNetwork)
	}
	open(4)
	wantClosed(t, all[3*maxMetricsConnectionsOfNetwork])
	open(5)
	wantClosed(t, all[0])
}

func TestClientsWithoutTheRightToMetricsKeepNoConnection(t *testing.T) {
	handler, _, _ := serveMetrics(t)
	address := serveMetricsPort(t, handler)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
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
