package forrst

import (
	"net/http"

	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// Path is where the Forrst protocol is spoken.
const Path = wire.Path

// Handler serves the façade. It is an [http.Handler] and safe for concurrent use.
type Handler struct {
	config    Config
	functions registry
	// cancellations are the calls that can be cancelled.
	cancellations *cancellations
	// background keeps locks for routed functions whose callers have gone.
	background *background
	// forwarder calls routed functions. Nil if there are none.
	forwarder *forward.Forwarder
	limiter   *callLimiter
	strangers *strangers
	bodies    *bodyBudget
	metrics   *metrics
	mux       *http.ServeMux
}

// New returns a handler, or an error that says what is wrong with config.
func New(config Config) (*Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	h := &Handler{config: config, background: newBackground(config.Logger), mux: http.NewServeMux()}
	h.forwarder = h.newForwarder()
	h.cancellations = newCancellations(config.Clock)
	h.limiter = newCallLimiter(config.CallLimits)
	h.strangers = newStrangers(config.Clock)
	h.bodies = newBodyBudget(config.CallLimits.BodyBytes)
	for _, function := range servedFunctions() {
		h.functions.add(function)
	}
	var err error
	if h.metrics, err = newMetrics(config.Metrics, h.limiter); err != nil {
		return nil, err
	}

	// A browser must not let any web page take locks where a façade asks for no
	// credentials. Other clients do not send what this looks at.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(h.serveCrossOrigin))
	forrst := sameOrigin.Handler(http.HandlerFunc(h.serveForrst))
	h.mux.Handle(Path, forrst)
	h.mux.Handle(Path+"/{"+namespacePart+"}", forrst)
	h.mux.HandleFunc("GET /healthz", serveHealthz)
	h.mux.HandleFunc("GET /readyz", h.serveReadyz)
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mux.ServeHTTP(w, r)
}
