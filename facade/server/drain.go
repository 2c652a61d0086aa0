package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// ErrStopped is the cause that ends the context of a call that outlasts the drain timeout.
var ErrStopped = errors.New("the server has stopped")

// answerTimeout is how long the client may take to receive an answer.
const answerTimeout = 30 * time.Second

// stoppingKey is the key of the context that ends when the server is to stop. The server
// goes on as before for a while, but callers should connect to another one.
type stoppingKey struct{}

func isStopping(ctx context.Context) bool {
	stopping, ok := ctx.Value(stoppingKey{}).(context.Context)
	return ok && stopping.Err() != nil
}

// BeginCall must be called before a call may wait, when its caller is authenticated and its
// body was read. HTTP/2 would end a call with the server's timeout for writing, even before
// there is anything to write. Requests that are no calls keep that timeout: a client that
// receives nothing must not keep a stream for ever.
func BeginCall(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
}

// BeginAnswer must be called before the answer of a call is written that may have waited.
// The time to write the answer begins now, and the client is asked to send its next request
// to another replica if the server is stopping.
func BeginAnswer(w http.ResponseWriter, r *http.Request) {
	// A writer without deadlines needs none. Connections judge them by the real clock.
	_ = http.NewResponseController(w).SetWriteDeadline(clock.RealClock{}.Now().Add(answerTimeout))
	if isStopping(r.Context()) {
		w.Header().Set("Connection", "close")
	}
}
