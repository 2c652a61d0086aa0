package server

import (
	"io"
	"net/http"
)

// serveHealthz says that the process answers.
func serveHealthz(w http.ResponseWriter, _ *http.Request) {
	writeProbe(w, http.StatusOK, "ok")
}

// serveReadyz says whether calls should be sent here.
func serveReadyz(w http.ResponseWriter, r *http.Request) {
	if isStopping(r.Context()) {
		writeProbe(w, http.StatusServiceUnavailable, "stopping")
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
