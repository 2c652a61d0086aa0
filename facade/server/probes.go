package server

import (
	"io"
	"net/http"
	"time"
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

// saturatedAfter is how long a limit of all callers together is used up before the replica counts
// as saturated: bursts are shorter.
const saturatedAfter = 3 * time.Second

// serveSaturation says whether the replica has been at a limit of all callers together for some
// seconds. It is no part of readiness: with one replica, or if all are saturated at once, callers
// are better served by a busy replica than by none (docs/design.md, section 16.2).
func (s *Server) serveSaturation(w http.ResponseWriter, _ *http.Request) {
	if s.limiter.Saturated() >= saturatedAfter {
		writeProbe(w, http.StatusServiceUnavailable, "saturated: in_flight")
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
