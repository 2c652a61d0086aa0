package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/server"
)

// serveMetricsPort returns the address of a port that serves the handler.
func serveMetricsPort(t *testing.T, handler http.Handler) string {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := newMetricsServer(inner, handler, nil, server.NewErrorLog(logr.Discard(), clock.RealClock{}))
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

// idleConn is a connection that may be closed.
type idleConn struct{ net.Conn }

// Close implements [net.Conn].
func (idleConn) Close() error { return nil }

// addFrom adds a connection of a network.
func (l *metricsListener) addFrom(number byte) (added, ended *metricsConnection, ok bool) {
	added = &metricsConnection{Conn: idleConn{}, all: l, network: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, number}), 32)}
	ended, ok = l.add(added)
	return added, ended, ok
}

// fullForMetrics returns a listener all of whose places are taken from networks 0 to 3.
func fullForMetrics(t *testing.T) (l *metricsListener, all []*metricsConnection) {
	t.Helper()
	l = &metricsListener{open: map[netip.Prefix]int{}}
	for number := range byte(maxMetricsConnections) {
		added, ended, ok := l.addFrom(number / maxMetricsConnectionsOfNetwork)
		if !ok || ended != nil {
			t.Fatalf("connection %d: added %t in place of another %t", number, ok, ended != nil)
		}
		all = append(all, added)
	}
	return l, all
}

func TestConnectionsForMetricsGiveWayToThoseOfOtherNetworks(t *testing.T) {
	l, all := fullForMetrics(t)
	if _, ended, ok := l.addFrom(3); !ok || ended != all[3*maxMetricsConnectionsOfNetwork] {
		t.Error("one more of a network does not end the oldest of it")
	}
	few, ended, ok := l.addFrom(4)
	if !ok || ended != all[0] {
		t.Error("one of another network does not end the oldest")
	}
	for number := range byte(5 * maxMetricsConnections) {
		if _, ended, ok := l.addFrom(number % 4); !ok || ended == few {
			t.Fatalf("connection %d: added %t in place of that of a network with few %t", number, ok, ended == few)
		}
	}
	if l.total != maxMetricsConnections {
		t.Errorf("%d are open", l.total)
	}
}

func TestConnectionsForMetricsAreBounded(t *testing.T) {
	l, all := fullForMetrics(t)
	for _, each := range all {
		each.authorized()
	}
	if _, _, ok := l.addFrom(5); ok {
		t.Error("one more was opened, in place of one with metrics or of none")
	}
	for range 2 {
		_ = all[0].Close()
	}
	if _, ended, ok := l.addFrom(5); !ok || ended != nil || l.total != maxMetricsConnections {
		t.Error("there is not room for one more")
	}
}

func TestHandshakesThatFailAreLoggedAtABoundedRate(t *testing.T) {
	lines := 0
	logger := funcr.New(func(string, string) { lines++ }, funcr.Options{})
	port, err := newMetricsServer(nil, nil, nil, server.NewErrorLog(logger, clocktesting.NewFakePassiveClock(time.Now())))
	if err != nil {
		t.Fatal(err)
	}
	for number := range 1000 {
		port.Server.ErrorLog.Printf("http: TLS handshake error from 192.0.2.1:%d: EOF", number)
	}
	if lines == 0 || lines > 10 {
		t.Errorf("%d lines", lines)
	}
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
