package facade

import (
	"net/http"
	"slices"
)

// Path is where the Forrst protocol is spoken.
const Path = "/forrst"

// Handler serves the façade. It is an [http.Handler] and safe for concurrent use.
type Handler struct {
	config    Config
	functions registry
	mux       *http.ServeMux
}

// New returns a handler, or an error that says what is wrong with config.
func New(config Config) (*Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	h := &Handler{config: config, mux: http.NewServeMux()}
	functions := slices.Concat(h.lockFunctions(), []Function{h.ping(), h.capabilities()}, config.Functions)
	for _, function := range functions {
		if err := h.functions.add(function); err != nil {
			return nil, err
		}
	}

	// A browser must not let any web page take locks where a façade asks for no
	// credentials. Other clients do not send what this looks at.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(h.serveCrossOrigin))
	h.mux.Handle(Path, sameOrigin.Handler(http.HandlerFunc(h.serveForrst)))
	h.mux.HandleFunc("GET /healthz", serveHealthz)
	h.mux.HandleFunc("GET /readyz", h.serveReadyz)
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mux.ServeHTTP(w, r)
}
