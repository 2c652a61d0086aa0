package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/webhook/sender"
)

// The default limits.
const (
	// DefaultMaxConnections has room for the calls that one API server has at a time by default, 600,
	// in the share of one network.
	DefaultMaxConnections = 1200
	// DefaultMaxMemory lets an API server have a review of the largest size, see [MemoryFor].
	DefaultMaxMemory = 384 << 20
	// DefaultMaxRequests bounds the load that forged reviews put on the API server.
	DefaultMaxRequests = 200
)

const (
	// networkShare is the divisor of each limit that gives the share of one network.
	networkShare = 2
	// MinLimit is the least that each limit can be.
	MinLimit = networkShare
)

// Timeouts of a connection. The API server waits for an answer for 5 seconds (config/webhook), and
// closes a connection that it has not used for 90 seconds.
//
// A review that is sent on a connection that the server closes at the same moment fails, and with it a write: the API
// server does not send it again. So the server closes no connection that the API server may still use. That includes
// one without any review: a client that needs another connection dials, and keeps it for later if one became
// free meanwhile.
const (
	reviewTimeout  = 10 * time.Second
	answerTimeout  = 20 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// StopTimeout is how long reviews may still take after Options.ShutdownDelay and Options.DrainTimeout.
const StopTimeout = 10 * time.Second

// DefaultDrainTimeout is longer than the API server keeps a connection that it does not use.
const DefaultDrainTimeout = 95 * time.Second

// Options configures a [Server]. Zero limits mean the defaults.
type Options struct {
	// Address is where to listen, as host:port. Required.
	Address string
	// CertDir is the folder with tls.crt and tls.key, which are read again when they change. Until they
	// are there, the server is not ready and every handshake fails. Empty means that of controller-runtime.
	CertDir string
	// ClientCA is a file with certificates of authorities in PEM, read again when it changes. With it,
	// only clients with a certificate of one of them are served. Connections that are open when it
	// changes stay. Empty means that any client is served.
	ClientCA string
	// ClientNames are names of which a client's certificate must have one, as its common name, a DNS
	// name or a URI. Empty means that any certificate of ClientCA will do.
	ClientNames []string
	// Reviews says what the reviews of each path may cost.
	Reviews map[string]Cost
	// MaxConnections are open at a time.
	MaxConnections int
	// MaxMemory is how many bytes reviews may take that are judged at a time, by their size and their [Cost]. Those that
	// arrive and wait take more, see [MemoryBeside].
	MaxMemory int64
	// MaxRequests is how many requests to the API server reviews may cost each second. It counts
	// only without ClientCA, since the API server bounds its own reviews.
	MaxRequests int
	// ShutdownDelay is how long reviews are still served after [Server.Drain] was called, while the
	// server says that it is not ready: the nodes of a cluster take some seconds to
	// stop sending connections to it. Zero means no delay.
	ShutdownDelay time.Duration
	// DrainTimeout is how long the server goes on after that, until its clients have closed all connections: each
	// answer asks them to. Zero means that it closes those without a review at once.
	DrainTimeout time.Duration
	// Clock measures the rate of requests and the delay. Nil means the real clock.
	Clock clock.Clock
	// Metrics is where the metrics are registered. Nil means nowhere.
	Metrics prometheus.Registerer
	// Logger gets the server's own messages. Zero discards.
	Logger logr.Logger
}

// Server implements controller-runtime's webhook.Server. Of each limit, one network (an address, of
// IPv6 64 bits) gets half at most; but networks of verified clients have all of the memory. It is safe
// for concurrent use.
type Server struct {
	// Server registers the handlers and their metrics. It is never started.
	ctrlwebhook.Server

	options Options
	mux     *http.ServeMux
	served  *certfile.Files
	// memory is for reviews that are judged, and arriving for those that have not been yet.
	memory, arriving *memory
	requests         *requests
	refused          *prometheus.CounterVec
	onRefused        func(Refused)
	// serving and stopping say that it serves and is to go on, and that its clients are asked to leave.
	serving, stopping atomic.Bool
	// listener has no inner one until the server listens.
	listener *listener.Listener
}

var _ ctrlwebhook.Server = &Server{}

// New returns a server that has not been started, or an error if the options are invalid or the
// metrics are registered already. It reads no files.
func New(options Options) (*Server, error) {
	options.CertDir = cmp.Or(options.CertDir, filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"))
	options.MaxConnections = cmp.Or(options.MaxConnections, DefaultMaxConnections)
	options.MaxMemory = cmp.Or(options.MaxMemory, DefaultMaxMemory)
	options.MaxRequests = cmp.Or(options.MaxRequests, DefaultMaxRequests)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	switch {
	case min(int64(options.MaxConnections), options.MaxMemory, int64(options.MaxRequests)) < MinLimit:
		return nil, fmt.Errorf("the limits of the webhook must be at least %d", MinLimit)
	case len(options.ClientNames) > 0 && options.ClientCA == "":
		return nil, errors.New("names of clients need the certificate of their authority")
	}
	s := &Server{
		options: options,
		mux:     http.NewServeMux(),
		served: certfile.New(certfile.Options{
			Certificate: filepath.Join(options.CertDir, "tls.crt"),
			Key:         filepath.Join(options.CertDir, "tls.key"),
			Logger:      options.Logger,
		}),
		memory:   newMemory(options.MaxMemory),
		arriving: newMemory(options.MaxMemory / arrivalShare),
		requests: newRequests(options.MaxRequests),
		refused:  metric.WebhookRefused.CounterVec(),
	}
	s.listener = listener.Limit(nil, listener.Options{
		Max: options.MaxConnections, MaxPerNetwork: options.MaxConnections / networkShare,
		OnClosed: func(string) { s.refused.WithLabelValues(tooManyConnections).Inc() },
	})
	s.Server = ctrlwebhook.NewServer(ctrlwebhook.Options{WebhookMux: s.mux})
	for _, reason := range []string{tooManyConnections, noCertificate, tooLarge, noMemory, notJSON, tooManyRequests} {
		s.refused.WithLabelValues(reason)
	}
	if options.Metrics != nil {
		err := metric.Register(options.Metrics, s.refused, certificates.NewValidityMetrics("webhook", s.served.Leaf),
			metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "webhook_memory"}, s.memory.usage),
			metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "webhook_connections"}, s.listener.Usage))
		if err != nil {
			return nil, fmt.Errorf("the webhook's server: %w", err)
		}
	}
	return s, nil
}

// Values of the label of the metric.
const (
	tooManyConnections = "connections"
	noCertificate      = "certificate"
	tooLarge           = "size"
	noMemory           = "memory"
	notJSON            = "format"
	tooManyRequests    = "requests"
)

// Register serves the handler at the path, which must be one of Options.Reviews. It panics if the path
// is not, or has a handler already.
func (s *Server) Register(path string, handler http.Handler) {
	cost, ok := s.options.Reviews[path]
	if !ok {
		panic("no cost is known of the reviews of " + path)
	}
	s.Server.Register(path, s.bounded(path, cost, handler))
}

// WebhookMux implements webhook.Server. Its handlers must be reached through the server.
func (s *Server) WebhookMux() *http.ServeMux { return s.mux }

// StartedChecker returns a check that fails until the server listens and has a certificate. It makes no connection: it must
// not fail because clients have used up all of them.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.serving.Load() {
			return errors.New("the webhook's server does not serve yet, or no longer")
		}
		return s.served.Ready(nil)
	}
}

// Start serves until ctx ends, and then until the reviews that are being judged are answered. A server that is to stop
// without closing a connection under a review is drained first, see [Server.Drain]: when ctx ends, what reviews are
// judged by may have stopped as well. An error says why it could not serve.
func (s *Server) Start(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	config, err := s.tlsConfig(watching, &watchers)
	if err != nil {
		return err
	}
	if s.listener.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.options.Address); err != nil {
		return fmt.Errorf("listen for reviews: %w", err)
	}
	server := s.newHTTPServer(context.WithoutCancel(ctx), config)
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(s.listener, "", "") }()
	s.serving.Store(true)
	defer s.serving.Store(false)
	s.options.Logger.Info("Webhook is serving", "address", s.listener.Addr().String(), "verifiesClients", s.isVerifying())
	select {
	case err := <-failed:
		return fmt.Errorf("serve reviews: %w", err)
	case <-ctx.Done():
	}
	s.serving.Store(false)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("stop serving reviews: %w", err), server.Close())
	}
	return nil
}

// Drain returns when the clients send no review any more, at the latest after Options.ShutdownDelay and
// Options.DrainTimeout. Meanwhile the server is not ready, and serves. End the context of [Server.Start] after it.
func (s *Server) Drain() {
	s.stopping.Store(true)
	s.serving.Store(false)
	if s.options.ShutdownDelay > 0 {
		s.options.Logger.Info("Webhook is no longer ready and stops soon", "delay", s.options.ShutdownDelay.String())
		<-s.options.Clock.After(s.options.ShutdownDelay)
	}
	if s.options.DrainTimeout <= 0 {
		return
	}
	s.options.Logger.Info("Webhook stops when its clients have closed their connections", "timeout", s.options.DrainTimeout.String())
	select {
	case <-s.listener.Empty():
	case <-s.options.Clock.After(s.options.DrainTimeout):
	}
}

// tlsConfig returns the configuration of connections, and watches its files until ctx ends.
func (s *Server) tlsConfig(ctx context.Context, watchers *sync.WaitGroup) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.options.ClientCA != "" {
		clients, err := newClients(s.options.ClientCA, s.options.ClientNames)
		if err != nil {
			return nil, err
		}
		clients.require(config, s.refused.WithLabelValues(noCertificate))
		watchers.Go(func() { clients.authority.Run(ctx, 1) })
	}
	_ = s.served.Load() // The check of readiness tells of the failure.
	config.GetCertificate = s.served.GetCertificate
	watchers.Go(func() { _ = s.served.Start(ctx) }) // It never fails.
	return config, nil
}

// newHTTPServer returns a server whose reviews have contexts from ctx.
func (s *Server) newHTTPServer(ctx context.Context, config *tls.Config) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler:   s.moveClients(timed(s.mux)),
		TLSConfig: config,
		Protocols: &protocols,
		// That of a connection without a review yet, and so of its first header; timed bounds the rest.
		ReadHeaderTimeout: idleTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	listener.Track(server, s.options.Logger)
	return server
}

// timed bounds how long a review may arrive. A [http.Server] would begin to count at the handshake.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arriveWithin(w, reviewTimeout)
		next.ServeHTTP(w, r)
	})
}

// arriveWithin bounds how long what is yet to be read of a review may take.
func arriveWithin(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) //nolint:forbidigo // It fails if the client has gone.
}

// moveClients asks the client of each review to send the next one to another replica, if this one is stopping:
// a connection that is closed when the next review has just been sent refuses a write.
func (s *Server) moveClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) isVerifying() bool { return s.options.ClientCA != "" }

// senderOf returns what is known of the sender of a review.
func (s *Server) senderOf(of tenant) sender.Sender {
	if s.isVerifying() {
		return sender.Sender{IsVerified: true}
	}
	return sender.Sender{Allow: func() bool {
		isAllowed := s.requests.allow(of, s.options.Clock.Now())
		if !isAllowed {
			s.refused.WithLabelValues(tooManyRequests).Inc()
		}
		return isAllowed
	}}
}
