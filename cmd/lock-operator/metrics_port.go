package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/listener"
)

const (
	// metricsRequestTimeout bounds the handshake, and the arrival of a request.
	metricsRequestTimeout = 5 * time.Second
	// metricsAnswerTimeout bounds the whole of a request, with the reviews that it costs.
	metricsAnswerTimeout = 30 * time.Second
	// metricsIdleTimeout is longer than the usual time between two scrapes.
	metricsIdleTimeout = 90 * time.Second
	// metricsStopTimeout is how long a scrape may take when the process ends.
	metricsStopTimeout   = 5 * time.Second
	maxMetricsHeaderSize = 16 << 10
	// maxMetricsConnections are open at a time, and maxMetricsConnectionsOfNetwork of one network: few
	// clients have a reason to ask for metrics.
	maxMetricsConnections          = 32
	maxMetricsConnectionsOfNetwork = 8
)

// addMetricsPort serves the metrics on their address, over TLS. It does so in place of controller-runtime,
// whose connections have no bound. With the address "0" it serves none.
func addMetricsPort(ctx context.Context, added ctrl.Manager, settings options, now clock.PassiveClock) error {
	if settings.metricsAddr == "0" {
		return nil
	}
	handler, err := newMetricsHandler(added.GetConfig(), added.GetHTTPClient(), now, added.GetLogger().WithName("metrics"),
		promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if err != nil {
		return err
	}
	served, err := newMetricsCertificate(added, settings)
	if err != nil {
		return err
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", settings.metricsAddr)
	if err != nil {
		return err
	}
	port, err := newMetricsServer(inner, handler, served, added.GetLogger().WithName("metrics"))
	if err == nil {
		err = added.Add(port)
	}
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	return nil
}

// newMetricsServer returns a server with the certificate in the files; without them, with one that it signs itself.
func newMetricsServer(inner net.Listener, handler http.Handler, served *certfile.Files, logger logr.Logger) (*manager.Server, error) {
	// A client of HTTP/2 may have any number of requests served at once.
	config := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if served != nil {
		config.GetCertificate = served.GetCertificate
	} else {
		certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
		if err != nil {
			return nil, fmt.Errorf("make a certificate for metrics: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("make a certificate for metrics: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	port := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: metricsRequestTimeout,
		ReadTimeout:       metricsRequestTimeout,
		WriteTimeout:      metricsAnswerTimeout,
		IdleTimeout:       metricsIdleTimeout,
		MaxHeaderBytes:    maxMetricsHeaderSize,
	}
	listener.Track(port, logger)
	limited := listener.Limit(inner, listener.Options{Max: maxMetricsConnections, MaxPerNetwork: maxMetricsConnectionsOfNetwork})
	return &manager.Server{
		Name: "metrics", Server: port, Listener: tls.NewListener(limited, config), ShutdownTimeout: new(metricsStopTimeout),
	}, nil
}
