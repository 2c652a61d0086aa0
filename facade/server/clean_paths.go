package server

import (
	"net/http"
	"path"
)

// cleanPathsOnly refuses paths with empty segments or dots. [http.ServeMux] would redirect them, and
// encode what is encoded already: a client that follows would name another lock.
func cleanPathsOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.URL.EscapedPath()
		cleaned := path.Clean(sent)
		if cleaned != "/" && len(sent) > 1 && sent[len(sent)-1] == '/' {
			cleaned += "/"
		}
		if cleaned != sent {
			http.Error(w, "The path must not have empty segments or dots", http.StatusNotFound)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
