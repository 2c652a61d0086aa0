package server

import (
	"net/http"
	"net/netip"
)

// limitRequests lets no more requests run than there may be connections, in total and of each address. Over
// HTTP/1.1 there never are. Over HTTP/2 a client that takes no answers would otherwise keep thousands of
// requests of each connection in memory, without a token. What is beyond is reset: an answer would need
// room in the client's window. Calls that wait for a lock do not count meanwhile: they have limits by
// caller, and one address may have very many.
//
// A client that resets requests as it sends them takes none of these places, and would have the server begin
// them without end. A connection on which a request was reset before it was begun ends, as soon as its other
// requests have: a client that means no harm sends the next ones over another connection.
func (t *connections) limitRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 && r.Context().Err() != nil {
			w.Header().Set("Connection", "close") // Over HTTP/2 it becomes GOAWAY.
			return
		}
		of, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if !t.beginRequest(of.network) {
			panic(http.ErrAbortHandler)
		}
		defer t.countRequest(of.network, -1)
		next.ServeHTTP(w, r)
		if r.ProtoMajor > 1 {
			// A short answer is sent only after the handler otherwise, and waits there for room uncounted. An
			// answer that cannot be sent ends with its stream.
			_ = http.NewResponseController(w).Flush()
		}
	})
}

func (t *connections) beginRequest(from netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running >= t.max || t.requests[from] >= t.maxPerAddress {
		return false
	}
	t.addRequests(from, 1)
	return true
}

func (t *connections) countRequest(from netip.Prefix, change int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addRequests(from, change)
}

// addRequests needs the mutex.
func (t *connections) addRequests(from netip.Prefix, change int) {
	t.running += change
	t.requests[from] += change
	if t.requests[from] == 0 {
		delete(t.requests, from)
	}
}

// BeginWait implements [limits.Waits].
func (c *connection) BeginWait() { c.all.countRequest(c.network, -1) }

// EndWait implements [limits.Waits]. The answer of the call counts even beyond the limits: it may tell of a
// lock.
func (c *connection) EndWait() { c.all.countRequest(c.network, 1) }
