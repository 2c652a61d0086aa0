// Package forrst is the door that speaks the Forrst protocol, at POST /forrst. It translates, and decides nothing about who
// holds what: that is package locks.
//
// One call goes through these steps, in the order of docs/forrst.md, section 1.6, for which [server.Calls] sees: the HTTP
// request is read, its envelope is decoded (package envelope), the function is looked up (functions.go), extensions
// and arguments are checked (extensions.go), and only when nothing can be refused do the extensions begin their work around
// the function (call.go). So a lock is never taken for a function that does not run.
//
// The codes of errors about locks, limits and access are chosen in errors.go. Those of each extension stand in its own file.
package forrst

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
)

// Path is where the Forrst protocol is spoken.
const Path = wire.Path

// Handler is the Forrst door to locks. It implements [server.Door] and is safe for concurrent use.
type Handler struct {
	config        Config
	functions     registry
	cancellations *cancellations
	health        healthChecks
	forwarder     *forward.Forwarder // calls routed functions; nil if there are none
	calls         server.Calls
}

// Config configures a [Handler].
type Config struct {
	// Server has what all doors share. [server.Server.Mount] must follow. Required.
	Server *server.Server
	// Access decides about callers. Required.
	Access *access.Control
	// Locks are the locks that are served. Required.
	Locks *locks.Locks
	// MaxBlock is the longest that a call may wait for a lock; a caller that wants to wait longer calls again. Zero means
	// [locks.DefaultMaxWait].
	MaxBlock time.Duration
	// Components tell what health is made of, each time that it is asked for. They have names of their own.
	Components []ComponentSource
	// Routing finds and calls functions of other services. Nil means that there are none.
	Routing *Routing

	// Version is the version of the service in its capabilities. Empty leaves it out.
	Version string
	// Clock tells the time. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what callers are not told: the causes of internal errors, and what goes wrong when a lock is released after
	// its call. Zero discards.
	Logger logr.Logger
}

// New returns a door, or an error that says what is wrong with config.
func New(config Config) (*Handler, error) {
	switch {
	case config.Server == nil || config.Access == nil || config.Locks == nil:
		return nil, errors.New("facade: Server, Access and Locks are required")
	case config.Routing != nil && (config.Routing.Routes == nil || config.Routing.Client == nil):
		return nil, errors.New("facade: Routing needs Routes and a Client")
	case config.MaxBlock < 0:
		return nil, errors.New("facade: the maximum block must not be negative")
	}
	config.MaxBlock = cmp.Or(config.MaxBlock, locks.DefaultMaxWait)
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	h := &Handler{
		config: config, cancellations: newCancellations(config.Clock),
		functions: registry{byName: map[string]*function{}}, health: healthChecks{checks: map[string]*healthCheck{}},
		calls: server.Calls{
			Server: config.Server, Door: "forrst", Access: config.Access, Clock: config.Clock, Logger: config.Logger, MaxBodyBytes: MaxRequestBytes,
		},
	}
	if config.Routing != nil {
		h.forwarder = &forward.Forwarder{
			Client: config.Routing.Client, IsHandled: HandlesExtension, MaxTTL: config.Locks.MaxTTL(), Pause: lock.RenewalPause,
			Clock: config.Clock, Background: config.Server.Background(), Logger: config.Logger,
		}
	}
	for _, function := range servedFunctions() {
		h.functions.add(function)
	}
	return h, nil
}

// Register implements [server.Door].
func (h *Handler) Register(mux *http.ServeMux) {
	// A browser must not let any web page take locks where a façade asks for no credentials. Other clients do not send what
	// this looks at.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(h.serveCrossOrigin))
	forrst := sameOrigin.Handler(http.HandlerFunc(h.serveForrst))
	mux.Handle(Path, forrst)
	mux.Handle(Path+"/{"+namespacePart+"}", forrst)
}
