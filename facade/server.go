package facade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// Timeouts of connections. Those for calls leave room for the function in between.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 2 * time.Minute
	idleTimeout       = 2 * time.Minute
	// maxHeaderBytes is what the protocol asks for (section 4.1), with room for the
	// token of a service account.
	maxHeaderBytes = 16 << 10

	// DefaultDrainTimeout is how long running calls may go on when the server stops.
	DefaultDrainTimeout = 20 * time.Second
	// cleanupTimeout is how long calls that were cut short may take to release.
	cleanupTimeout = 5 * time.Second
)

// Server serves a handler on a listener. It implements controller-runtime's
// manager.Runnable.
type Server struct {
	// Listener accepts the connections; [Server.Start] closes it. Its address is the
	// one that the server is reached at. Required.
	Listener net.Listener
	// Handler answers. Required.
	Handler http.Handler
	// DrainTimeout is how long running calls may go on after ctx of Start has ended.
	// Then their contexts end. Zero means [DefaultDrainTimeout].
	DrainTimeout time.Duration
	// Logger gets the server's own messages. Zero discards.
	Logger logr.Logger
}

// NeedLeaderElection is false: every replica serves its own callers.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. Then it accepts no more calls, lets the running ones
// finish, and returns nil. Calls that outlast the drain timeout are cancelled, and get
// a moment to release their locks.
func (s *Server) Start(ctx context.Context) error {
	// Calls outlive ctx, which only says when to begin to stop.
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return calls },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.Listener) }()
	s.Logger.Info("Façade is serving", "address", s.Listener.Addr().String())

	select {
	case err := <-failed:
		return fmt.Errorf("serve the façade on %s: %w", s.Listener.Addr(), err)
	case <-ctx.Done():
	}
	return s.stop(context.WithoutCancel(ctx), server, cancelCalls)
}

func (s *Server) stop(ctx context.Context, server *http.Server, cancelCalls context.CancelFunc) error {
	drainTimeout := s.DrainTimeout
	if drainTimeout <= 0 {
		drainTimeout = DefaultDrainTimeout
	}
	err := shutdown(ctx, server, drainTimeout)
	if errors.Is(err, context.DeadlineExceeded) {
		s.Logger.Info("Calls are still running and are cancelled")
		cancelCalls()
		err = shutdown(ctx, server, cleanupTimeout)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stop the façade: %w", err), server.Close())
	}
	return nil
}

func shutdown(ctx context.Context, server *http.Server, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return server.Shutdown(ctx)
}
