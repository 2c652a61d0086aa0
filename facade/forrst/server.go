package forrst

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	// DefaultDrainTimeout is how long running calls may go on when the server stops.
	DefaultDrainTimeout = 20 * time.Second
	// DefaultMaxConnections has room for as many calls as may wait for locks by default,
	// each on a connection of its own, and for those that run.
	DefaultMaxConnections = DefaultMaxWaiting + DefaultMaxRunning
	// cleanupTimeout is how long calls that were cut short may take to release.
	cleanupTimeout = 5 * time.Second
)

// Server serves a handler on a listener, by HTTP/1.1 and HTTP/2. It implements
// controller-runtime's manager.Runnable. It must not be changed after its start.
type Server struct {
	// Listener accepts the connections; [Server.Start] closes it. Its address is the
	// one that the server is reached at. Required.
	Listener net.Listener
	// Handler answers. Required.
	Handler http.Handler
	// Certificates has the certificate for TLS, which the server watches while it runs.
	// Nil means to serve without TLS; otherwise nothing is served without.
	Certificates *certwatcher.CertWatcher
	// MaxConnections is how many connections are open at a time. One more waits until
	// another ends. Zero means [DefaultMaxConnections].
	MaxConnections int
	// ShutdownDelay is how long everything goes on as before, except that the server is
	// not ready, after ctx of Start has ended: it takes a while until nobody connects any
	// more. Zero means not at all.
	ShutdownDelay time.Duration
	// DrainTimeout is how long running calls may go on after that. Then their contexts
	// end. Zero means [DefaultDrainTimeout].
	DrainTimeout time.Duration
	// Clock measures the delay. Nil means the real clock.
	Clock clock.Clock
	// Logger gets the server's own messages. Zero discards.
	Logger logr.Logger

	serving atomic.Bool
}

// NeedLeaderElection is false: every replica serves its own callers.
func (s *Server) NeedLeaderElection() bool { return false }

// Ready returns an error unless the server serves and is to go on. It implements
// controller-runtime's healthz.Checker.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the façade does not serve yet, or not any more")
	}
	return nil
}

// Start serves until ctx ends. Then the server is not ready any more, and after the delay
// it closes its listener, answers calls that wait for a lock that it is unavailable, lets
// the running ones finish, and returns nil. Calls that outlast the drain timeout are
// cancelled, and get a moment to release their locks. An error says why it could not
// serve, in which case calls end in the same way but without the delay, or that something
// was still running when it gave up.
func (s *Server) Start(ctx context.Context) error {
	// Calls outlive ctx, which only says when to begin to stop.
	calls, cancelCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelCalls(nil)
	draining, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	handlers := &runningHandlers{handler: s.Handler}
	server := newHTTPServer(withPhases(calls, phases{stopping: ctx, draining: draining}), handlers, s.tlsConfig())
	failed := make(chan error, 2)
	stopWatching := s.watchCertificates(ctx, failed)
	defer stopWatching()
	s.serving.Store(true)
	defer s.serving.Store(false)
	go func() { failed <- s.serve(server) }()
	s.Logger.Info("Façade is serving", "address", s.Listener.Addr().String(), "tls", s.Certificates != nil)

	var failure error
	select {
	case err := <-failed:
		failure = fmt.Errorf("serve the façade on %s: %w", s.Listener.Addr(), err)
		s.serving.Store(false)
	case <-ctx.Done():
		s.serving.Store(false)
		s.delay()
	}
	drain()
	return errors.Join(failure, s.stop(context.WithoutCancel(ctx), server, handlers, cancelCalls))
}

func (s *Server) serve(server *http.Server) error {
	listener := netutil.LimitListener(s.Listener, cmp.Or(s.MaxConnections, DefaultMaxConnections))
	if s.Certificates != nil {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}

func (s *Server) tlsConfig() *tls.Config {
	if s.Certificates == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Certificates.GetCertificate}
}

// watchCertificates reads the certificate again when it changes, until the function that
// is returned is called, which waits for the end.
func (s *Server) watchCertificates(ctx context.Context, failed chan<- error) (stop func()) {
	if s.Certificates == nil {
		return func() {}
	}
	// Connections are accepted for a while after ctx has ended.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Certificates.Start(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("watch the certificate: %w", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (s *Server) delay() {
	if s.ShutdownDelay <= 0 {
		return
	}
	var now clock.Clock = clock.RealClock{}
	if s.Clock != nil {
		now = s.Clock
	}
	s.Logger.Info("Façade is not ready any more and stops soon", "delay", s.ShutdownDelay.String())
	<-now.After(s.ShutdownDelay)
}

func (s *Server) stop(ctx context.Context, server *http.Server, handlers *runningHandlers, cancelCalls context.CancelCauseFunc) error {
	drainTimeout := s.DrainTimeout
	if drainTimeout <= 0 {
		drainTimeout = DefaultDrainTimeout
	}
	drained, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	err := shutdown(drained, server, handlers)
	if errors.Is(err, context.DeadlineExceeded) {
		s.Logger.Info("Calls are still running and are cancelled")
		cancelCalls(errStopped)
		cleanup, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		err = shutdown(cleanup, server, handlers)
	}
	s.finishWork(drained)
	if err != nil {
		return errors.Join(fmt.Errorf("stop the façade: %w", err), server.Close())
	}
	return nil
}

func shutdown(ctx context.Context, server *http.Server, handlers *runningHandlers) error {
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	return handlers.wait(ctx)
}
