package forrst

import (
	"io"
	"net/http"
)

// serveHealthz says that the process answers.
func serveHealthz(w http.ResponseWriter, _ *http.Request) {
	writeProbe(w, http.StatusOK, "ok")
}

// serveReadyz says whether calls should be sent here. The reason why not goes to the
// log: whoever may probe need not be told about the inside.
func (h *Handler) serveReadyz(w http.ResponseWriter, r *http.Request) {
	if isStopping(r.Context()) {
		writeProbe(w, http.StatusServiceUnavailable, "stopping")
		return
	}
	if err := h.config.Ready(r.Context()); err != nil {
		h.config.Logger.V(1).Info("The façade is not ready", "reason", err.Error())
		writeProbe(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	writeProbe(w, http.StatusOK, "ok")
}

func writeProbe(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A prober that has gone needs no answer.
	_, _ = io.WriteString(w, text)
}
