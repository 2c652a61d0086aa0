package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/tracing"
)

const (
	// DefaultDrainTimeout is how long running calls may go on when the server stops.
	DefaultDrainTimeout = 20 * time.Second
	// DefaultMaxConnections has room for as many calls as may wait for locks by default,
	// each on a connection of its own, and for those that run.
	DefaultMaxConnections = limits.DefaultMaxInFlight
	// CleanupTimeout is how long what was cut short may take to release its locks.
	CleanupTimeout = 5 * time.Second
	// LingerTimeout is how long a server that has stopped waits for clients to read their answers, and to end their
	// connections.
	LingerTimeout = 5 * time.Second
)

// Door speaks one protocol to callers. The server hands it what all doors share.
type Door interface {
	// Register adds the paths of the door. It is called once, before the server starts.
	Register(mux *http.ServeMux)
}

// Options configures a [Server].
type Options struct {
	// Listener accepts the connections; [Server.Start] closes it. Its address is the
	// one that the server is reached at. Required for Start.
	Listener net.Listener
	// Certificates has the certificate for TLS, which the server reads while it runs. Until there is one,
	// the server is not ready and every handshake fails. Nil means to serve without TLS; otherwise nothing
	// is served without.
	Certificates *certfile.Files
	// LoopbackHostsOnly refuses requests whose Host is not localhost or a loopback address. It is for
	// a server whose callers are not authenticated: pages of other sites could reach it by a name of
	// their own (DNS rebinding).
	LoopbackHostsOnly bool
	// MaxConnections is how many connections are open at a time. One more is opened in place of one without an
	// authenticated call, see [listener.Listener], or is closed. Zero means [DefaultMaxConnections].
	MaxConnections int
	// MaxConnectionsPerAddress is how many of them may come from one address, of IPv6 from a network
	// of 64 bits. Zero means a tenth.
	MaxConnectionsPerAddress int
	// Access is what the doors authenticate callers with. Requests with credentials that it knows are
	// begun when those of unknown callers have all their places. Nil means that none are known.
	Access *access.Control
	// ShutdownDelay is how long everything goes on as before, except that the server is
	// not ready, after ctx of Start has ended: clients take a while to stop connecting.
	// Zero means not at all.
	ShutdownDelay time.Duration
	// DrainTimeout is how long running calls may go on after that. Then their contexts
	// end. Zero means [DefaultDrainTimeout].
	DrainTimeout time.Duration
	// Limits bounds how many calls are served at a time, those of all doors together.
	Limits limits.Limits
	// Metrics is where the metrics are registered. Nil means nowhere.
	Metrics prometheus.Registerer
	// Audit takes the records of calls that are refused. Nil means no records.
	Audit audit.Sink
	// Tracer makes the spans of calls. Nil means none.
	Tracer *tracing.Tracer
	// Clock measures the delay, rates, and how long requests have been served. Nil means the real clock.
	Clock clock.Clock
	// Logger gets the server's own messages. Zero discards.
	Logger logr.Logger
}

// Server serves doors on one listener, by HTTP/1.1 and HTTP/2. It implements
// controller-runtime's manager.Runnable, and [http.Handler] for tests that need no
// listener. It is safe for concurrent use once its doors are mounted.
type Server struct {
	options    Options
	mux        *http.ServeMux
	handler    http.Handler
	limiter    *limits.Limiter
	background *Background
	listener   *listener.Listener
	requests   *requests
	metrics    *metrics
	serving    atomic.Bool
}

// New returns a server without doors, or an error if options are invalid or the metrics
// are registered already.
func New(options Options) (*Server, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	options.MaxConnections = cmp.Or(options.MaxConnections, DefaultMaxConnections)
	options.DrainTimeout = cmp.Or(options.DrainTimeout, DefaultDrainTimeout)
	limiter, err := limits.New(options.Limits, options.Clock)
	if err != nil {
		return nil, fmt.Errorf("facade: %w", err)
	}
	share := cmp.Or(options.MaxConnectionsPerAddress, limits.ShareOf(options.MaxConnections))
	s := &Server{
		options: options, limiter: limiter, background: newBackground(options.Logger), mux: http.NewServeMux(),
		requests: newRequests(options.MaxConnections, share, limiter, options.Clock),
	}
	s.listener = listener.Limit(options.Listener, listener.Options{
		Max: options.MaxConnections, MaxPerNetwork: share,
		OnClosed: func(reason string) { s.metrics.closed.WithLabelValues(reason).Inc() },
	})
	if s.metrics, err = newMetrics(options.Metrics, s); err != nil {
		return nil, err
	}
	s.handler = cleanPathsOnly(s.mux)
	if options.LoopbackHostsOnly {
		s.handler = loopbackHostsOnly(s.handler)
	}
	s.handler = s.requests.limit(s.handler, options.Access)
	s.mux.HandleFunc("GET /healthz", serveHealthz)
	s.mux.HandleFunc("GET /readyz", serveReadyz)
	s.mux.HandleFunc("GET /readyz/saturation", s.serveSaturation)
	return s, nil
}

// Mount adds a door. It must not be called after [Server.Start].
func (s *Server) Mount(door Door) { door.Register(s.mux) }

// Limiter counts the calls of all doors.
func (s *Server) Limiter() *limits.Limiter { return s.limiter }

// Tracer makes the spans of the calls of all doors. It may be nil.
func (s *Server) Tracer() *tracing.Tracer { return s.options.Tracer }

// Background runs what outlives calls. The server waits for it when it stops.
func (s *Server) Background() *Background { return s.background }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// NeedLeaderElection is false: every replica serves its own callers.
func (s *Server) NeedLeaderElection() bool { return false }

// Ready returns an error unless the server serves and is to go on. It implements
// controller-runtime's healthz.Checker.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the façade does not serve yet, or no longer")
	}
	if s.options.Certificates != nil {
		return s.options.Certificates.Ready(nil)
	}
	return nil
}

// Start serves until ctx ends. Then the server is no longer ready, and after the delay
// it closes its listener, answers calls that wait for a lock that it is unavailable, lets
// the running ones finish, and returns nil. Calls that outlast the drain timeout are
// cancelled, and get a moment to release their locks. Clients get a moment to read their
// answers. An error says why it could not serve, in which case calls end in the same way
// but without the delay, or that something was still running when it gave up.
func (s *Server) Start(ctx context.Context) error {
	// Calls outlive ctx, which only says when to begin to stop.
	calls, cancelCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelCalls(nil)
	handlers := &activity{}
	server := newHTTPServer(context.WithValue(calls, stoppingKey{}, ctx), handlers.counting(s.handler), s.tlsConfig())
	listener.Track(server, s.options.Logger)
	failed := make(chan error, 1)
	stopReading := s.readCertificates(ctx)
	defer stopReading()
	s.serving.Store(true)
	defer s.serving.Store(false)
	go func() { failed <- s.serve(server) }()
	s.options.Logger.Info("Façade is serving", "address", s.options.Listener.Addr().String(), "tls", s.options.Certificates != nil)

	var failure error
	select {
	case err := <-failed:
		failure = fmt.Errorf("serve the façade on %s: %w", s.options.Listener.Addr(), err)
		s.beginToStop()
	case <-ctx.Done():
		s.beginToStop()
		s.delay()
	}
	s.limiter.Drain()
	return errors.Join(failure, s.stop(context.WithoutCancel(ctx), server, handlers, cancelCalls))
}

func (s *Server) serve(server *http.Server) error {
	if s.options.Certificates != nil {
		return server.ServeTLS(s.listener, "", "")
	}
	return server.Serve(s.listener)
}

func (s *Server) tlsConfig() *tls.Config {
	if s.options.Certificates == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.options.Certificates.GetCertificate}
}

// readCertificates reads the certificate now, and again when it changes until the function that is returned
// is called, which waits for the end.
func (s *Server) readCertificates(ctx context.Context) (stop func()) {
	files := s.options.Certificates
	if files == nil {
		return func() {}
	}
	_ = files.Load() // Ready tells of the failure.
	// Connections are accepted for a while after ctx has ended.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reader sync.WaitGroup
	reader.Go(func() { _ = files.Start(ctx) }) // It never fails.
	return func() {
		cancel()
		reader.Wait()
	}
}

func (s *Server) beginToStop() {
	s.listener.Linger()
	s.serving.Store(false)
}

func (s *Server) delay() {
	if s.options.ShutdownDelay <= 0 {
		return
	}
	s.options.Logger.Info("Façade is no longer ready and stops soon", "delay", s.options.ShutdownDelay.String())
	<-s.options.Clock.After(s.options.ShutdownDelay)
}

func (s *Server) stop(ctx context.Context, server *http.Server, handlers *activity, cancelCalls context.CancelCauseFunc) error {
	defer s.endConnections()
	drained, cancel := context.WithTimeout(ctx, s.options.DrainTimeout)
	defer cancel()
	err := shutdown(drained, server, handlers)
	if errors.Is(err, context.DeadlineExceeded) {
		s.options.Logger.Info("Calls are still running and are cancelled")
		cancelCalls(ErrStopped)
		cleanup, cancel := context.WithTimeout(ctx, CleanupTimeout)
		defer cancel()
		err = shutdown(cleanup, server, handlers)
	}
	s.Drain(drained)
	if err != nil {
		return errors.Join(fmt.Errorf("stop the façade: %w", err), server.Close())
	}
	return nil
}

// endConnections waits until clients have ended the connections that linger, and closes what is left.
func (s *Server) endConnections() {
	timer := s.options.Clock.NewTimer(LingerTimeout)
	defer timer.Stop()
	empty := s.listener.Empty()
	select {
	case <-empty:
	case <-timer.C():
		s.listener.Abort()
	}
}

// Drain waits for what runs in the background. When ctx ends first, it tells it to end, and
// waits a moment longer. [Server.Start] does so when all calls have ended.
func (s *Server) Drain(ctx context.Context) {
	if s.background.wait(ctx) == nil {
		return
	}
	s.options.Logger.Info("Work of calls that have ended is still running and is cancelled")
	s.background.stop()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
	defer cancel()
	_ = s.background.wait(cleanup) // It has had its time.
}

func shutdown(ctx context.Context, server *http.Server, handlers *activity) error {
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	return handlers.wait(ctx)
}
