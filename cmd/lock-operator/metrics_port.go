package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/lock/network"
)

const (
	// maxMetricsConnections are open at a time, and maxMetricsConnectionsOfNetwork of one network: few
	// clients have a reason to ask for metrics.
	maxMetricsConnections          = 32
	maxMetricsConnectionsOfNetwork = 8
	// metricsRequestTimeout bounds the handshake, and the arrival of a request.
	metricsRequestTimeout = 5 * time.Second
	// metricsAnswerTimeout bounds the whole of a request, with the reviews that it costs.
	metricsAnswerTimeout = 30 * time.Second
	// metricsIdleTimeout is longer than the usual time between two scrapes.
	metricsIdleTimeout = 90 * time.Second
	// metricsStopTimeout is how long a scrape may take when the process ends.
	metricsStopTimeout   = 5 * time.Second
	maxMetricsHeaderSize = 16 << 10
)

// addMetricsPort serves the metrics on the address, over TLS with a certificate that the process signs
// itself. It does so in place of controller-runtime, whose connections have no bound. With the address
// "0" it serves none.
func addMetricsPort(ctx context.Context, added ctrl.Manager, address string, now clock.PassiveClock) error {
	if address == "0" {
		return nil
	}
	handler, err := newMetricsHandler(added.GetConfig(), added.GetHTTPClient(), now, added.GetLogger().WithName("metrics"),
		promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if err != nil {
		return err
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	port, err := newMetricsServer(inner, handler)
	if err != nil {
		return err
	}
	return added.Add(port)
}

func newMetricsServer(inner net.Listener, handler http.Handler) (*manager.Server, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	return &manager.Server{
		Name: "metrics",
		Server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: metricsRequestTimeout,
			ReadTimeout:       metricsRequestTimeout,
			WriteTimeout:      metricsAnswerTimeout,
			IdleTimeout:       metricsIdleTimeout,
			MaxHeaderBytes:    maxMetricsHeaderSize,
		},
		// A client of HTTP/2 may have any number of requests served at once.
		Listener: tls.NewListener(&metricsListener{Listener: inner, open: map[netip.Prefix]int{}},
			&tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}),
		ShutdownTimeout: new(metricsStopTimeout),
	}, nil
}

// metricsListener bounds the connections that are open: all of them, and those of one network. One more
// is closed at once.
type metricsListener struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[netip.Prefix]int
}

// Accept implements [net.Listener].
func (l *metricsListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if of := network.Of(accepted.RemoteAddr().String()); l.count(of) {
			return &metricsConnection{Conn: accepted, uncount: sync.OnceFunc(func() { l.uncount(of) })}, nil
		}
		_ = accepted.Close() // The client is told nothing either way.
	}
}

// count reports whether there is room for a connection of the network, which it then takes.
func (l *metricsListener) count(of netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxMetricsConnections || l.open[of] >= maxMetricsConnectionsOfNetwork {
		return false
	}
	l.total++
	l.open[of]++
	return true
}

func (l *metricsListener) uncount(of netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.open[of]--
	if l.open[of] == 0 {
		delete(l.open, of)
	}
}

// metricsConnection counts until it is closed.
type metricsConnection struct {
	net.Conn

	uncount func()
}

// Close implements [net.Conn].
func (c *metricsConnection) Close() error {
	defer c.uncount()
	return c.Conn.Close()
}
