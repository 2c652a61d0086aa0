package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/facade/server"
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
	port, err := newMetricsServer(inner, handler, server.NewErrorLog(added.GetLogger().WithName("metrics"), now))
	if err == nil {
		err = added.Add(port)
	}
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	return nil
}

func newMetricsServer(inner net.Listener, handler http.Handler, faults slog.Handler) (*manager.Server, error) {
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
			ErrorLog:          slog.NewLogLogger(faults, slog.LevelInfo),
			ConnContext:       withMetricsConnection,
		},
		// A client of HTTP/2 may have any number of requests served at once.
		Listener: tls.NewListener(&metricsListener{Listener: inner, open: map[netip.Prefix]int{}},
			&tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}),
		ShutdownTimeout: new(metricsStopTimeout),
	}, nil
}

// metricsListener bounds the connections that are open: all of them, and those of one network. For one
// more, the oldest ends of those that have got no metrics yet. If there is none, it is closed at once.
type metricsListener struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[netip.Prefix]int
	// unproven are those that have got no metrics, in the order in which they were opened.
	unproven []*metricsConnection
}

// Accept implements [net.Listener].
func (l *metricsListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &metricsConnection{Conn: accepted, all: l, network: network.Of(accepted.RemoteAddr().String())}
		ended, ok := l.add(added)
		if ended != nil {
			_ = ended.Conn.Close() // It no longer counts.
		}
		if ok {
			return added, nil
		}
		_ = accepted.Close() // The client is told nothing either way.
	}
}

// add reports whether there is room for a connection, which it then takes, and returns the one that ends for
// it, or nil.
func (l *metricsListener) add(added *metricsConnection) (ended *metricsConnection, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isNetworkFull := l.open[added.network] >= maxMetricsConnectionsOfNetwork
	if isNetworkFull || l.total >= maxMetricsConnections {
		for _, each := range l.unproven {
			// A network with many gives way to one with few.
			isCandidate := !isNetworkFull || each.network == added.network
			if isCandidate && (ended == nil || l.open[each.network] > l.open[ended.network]) {
				ended = each
			}
		}
		if ended == nil {
			return nil, false
		}
		l.remove(ended)
	}
	l.total++
	l.open[added.network]++
	l.unproven = append(l.unproven, added)
	return ended, true
}

// remove forgets a connection. It needs the mutex.
func (l *metricsListener) remove(c *metricsConnection) {
	if c.isOver {
		return
	}
	c.isOver = true
	l.total--
	l.open[c.network]--
	if l.open[c.network] == 0 {
		delete(l.open, c.network)
	}
	l.prove(c)
}

// prove records that a connection no longer gives way to others. It needs the mutex.
func (l *metricsListener) prove(c *metricsConnection) {
	l.unproven = slices.DeleteFunc(l.unproven, func(each *metricsConnection) bool { return each == c })
}

// metricsConnection counts until it is closed, or ends for another.
type metricsConnection struct {
	net.Conn

	all     *metricsListener
	network netip.Prefix
	// isOver needs the mutex of the listener.
	isOver bool
}

// Close implements [net.Conn].
func (c *metricsConnection) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// authorized records that a client of the connection may get metrics.
func (c *metricsConnection) authorized() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.prove(c)
}

// metricsConnectionKey is the key of the [*metricsConnection] in the contexts of its requests.
type metricsConnectionKey struct{}

func withMetricsConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, metricsConnectionKey{}, c)
}
