package server

import (
	"context"
	"net/http"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
)

// requestKey is the key of the [*request] in the context of a request.
type requestKey struct{}

// limit bounds the requests that are served. Over HTTP/2 a client that takes no answers would otherwise keep thousands of
// requests of each connection in memory. What is beyond is reset: an answer would need room in the client's window.
//
// A client that resets requests as it sends them takes none of these places, and would have the server begin
// them without end. A connection on which a request was reset before it was begun ends, as soon as its other
// requests have: a client that means no harm sends the next ones over another connection.
//
// Control, unless it is nil, tells which credentials are known.
func (t *requests) limit(next http.Handler, control *access.Control) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isHTTP2 := r.ProtoMajor > 1
		if isHTTP2 && r.Context().Err() != nil {
			w.Header().Set("Connection", "close") // Over HTTP/2 it becomes GOAWAY.
			return
		}
		of := listener.Of(r.Context())
		counted := &request{all: t, of: of, network: of.Network(), w: w, isHTTP2: isHTTP2, leave: func() {}, release: func() {}}
		if of == nil { // It comes over no connection of the listener.
			defer counted.finish()
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, counted)))
			return
		}
		victim, ok := t.begin(counted, func() bool { return control != nil && control.IsKnown(r) })
		if victim != nil {
			victim.end()
		}
		if !ok {
			panic(http.ErrAbortHandler)
		}
		defer counted.finish()
		if hasManyFields(r) {
			// They cost no memory while the answer waits to be sent.
			r.Header = http.Header{}
			http.Error(w, "The request has too many header fields", http.StatusRequestHeaderFieldsTooLarge)
		} else {
			if isHTTP2 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
				_ = r.Body.Close()
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, counted)))
		}
		if isHTTP2 {
			// What was not read of the body is not kept, and a short answer counts as well, which is otherwise
			// sent only after the handler. An answer that cannot be sent ends with its stream.
			_ = r.Body.Close()
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// hasManyFields reports whether the header has more fields than a request may have. It aborts one that
// announces as many trailers: the server would keep these.
func hasManyFields(r *http.Request) bool {
	if len(r.Trailer) > maxHeaderFields {
		panic(http.ErrAbortHandler)
	}
	fields := 0
	for _, values := range r.Header {
		fields += len(values)
	}
	return fields > maxHeaderFields
}

// Authenticate returns the caller who has sent a request to a [Server], with the permit for it, as the control finds out. From
// then on the request counts against the limits of the caller until its answer is sent, and its connection is not closed for
// others. The error is one of the control, or a [*limits.Error] for a caller that has too many requests.
func Authenticate(r *http.Request, control *access.Control) (access.Caller, error) {
	caller, err := control.Authenticate(r)
	if err != nil {
		return caller, err
	}
	counted, _ := r.Context().Value(requestKey{}).(*request)
	caller.Permit, err = counted.authenticate(limits.CallerOf(r, caller.Holder()))
	return caller, err
}
