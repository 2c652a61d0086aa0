package forrst

import (
	"net/http"

	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/server"
)

// Path is where the Forrst protocol is spoken.
const Path = wire.Path

// doorName is the name of the door in metrics and in the audit.
const doorName = "forrst"

// Handler is the Forrst door to locks. It implements [server.Door] and is safe for
// concurrent use.
type Handler struct {
	config    Config
	functions registry
	// cancellations are the calls that can be cancelled.
	cancellations *cancellations
	health        healthChecks
	// forwarder calls routed functions. Nil if there are none.
	forwarder *forward.Forwarder
	calls     server.Calls
}

// New returns a door, or an error that says what is wrong with config.
func New(config Config) (*Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	calls := server.Calls{Server: config.Server, Door: doorName, Access: config.Access, Clock: config.Clock, Logger: config.Logger, MaxBodyBytes: MaxRequestBytes}
	h := &Handler{config: config, calls: calls, cancellations: newCancellations(config.Clock), health: healthChecks{checks: map[string]*healthCheck{}}}
	h.forwarder = h.newForwarder()
	for _, function := range servedFunctions() {
		h.functions.add(function)
	}
	return h, nil
}

// Register implements [server.Door].
func (h *Handler) Register(mux *http.ServeMux) {
	// A browser must not let any web page take locks where a façade asks for no
	// credentials. Other clients do not send what this looks at.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(h.serveCrossOrigin))
	forrst := sameOrigin.Handler(http.HandlerFunc(h.serveForrst))
	mux.Handle(Path, forrst)
	mux.Handle(Path+"/{"+namespacePart+"}", forrst)
}
