package lockhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
)

// Handler returns a handler that runs each write of a resource under its lock. GET, HEAD, OPTIONS and
// TRACE pass by: a lock never blocks reads.
//
// A request with the header X-Lock-Token runs under the lock of the token, which is renewed for the ttl
// that it has when the request begins, and then until it ends; without renewal if [lock.WithoutRenewal] is
// among the options. 410 answers a token whose grant has ended, and 403 one that was never made for
// the lock. The token is proved again at each request, so a client may send several at a time; they do
// not exclude each other.
//
// A request without the header acquires the lock for its own time, and is answered with 423 if another
// client holds it.
//
// The handler h finds the lock by [FromContext], and must give its fencing token to the receiver of each
// write ([lock.Held.FencingToken]): a process may notice too late that a lock has ended. Its context ends
// with the lock, and [context.Cause] says why; it matches [context.DeadlineExceeded] after the MaxDuration of
// the [Config]. From then on, reads of the body fail on servers that support read deadlines. If the context
// ends so before h has begun its answer, the client is told in its place: by 410 if it has shown a token and
// the grant has ended, and else by 503. What h did until then may have happened. Work that goes on after h
// has returned is not under the lock.
func (p *Protection) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			h.ServeHTTP(w, r)
		default:
			p.serveLocked(w, r, h) // the context of the lock descends from that of the request
		}
	})
}

// errTooLong is why the context of a request has ended after MaxDuration.
var errTooLong = fmt.Errorf("lockhttp: the request took longer than MaxDuration: %w", context.DeadlineExceeded)

func (p *Protection) serveLocked(w http.ResponseWriter, r *http.Request, h http.Handler) {
	_, hasToken := r.Header[locktoken.Header]
	key, err := p.keyOf(r, !hasToken)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	held, err := p.hold(r, key, hasToken)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithValue(held.Context(), heldKey{}, held), p.config.MaxDuration, errTooLong)
	defer cancel()
	// Deferred: a panic in h ends the hold, too.
	defer p.end(ctx, key, held, hasToken)
	answer := newAnswerWriter(w, r)
	stop := onEnd(ctx, func() { p.interrupt(ctx, held, answer) })
	defer stop()
	served := r.WithContext(ctx)
	if r.Body != nil {
		served.Body = &body{r.Body, answer}
	}
	// The server removes the files of the form that its own request has.
	defer func() { r.MultipartForm = served.MultipartForm }()
	h.ServeHTTP(answer, served)
	if loss := lossOf(ctx, held); loss != nil && !answer.hasBegun {
		answer.dropHeaders()
		if r.ProtoMajor == 1 { // The end of the body may have been read while stopReading was called.
			w.Header().Set("Connection", "close")
		}
		p.refuse(w, r, lossAnswer(loss, hasToken))
	}
}

// hold takes the lock for a request.
func (p *Protection) hold(r *http.Request, key string, hasToken bool) (*lock.Held, error) {
	if !hasToken {
		held, err := p.writers.Acquire(r.Context(), key, lock.WithOwner(""))
		return held, p.withoutBlame(err)
	}
	proof, err := p.readProof(r, key)
	if err != nil {
		return nil, err
	}
	// For the ttl that the client has asked for.
	held, err := p.locks.Resume(r.Context(), key, proof)
	return held, p.withoutBlame(withToken(err))
}

// withoutBlame returns what an error means to a client that has chosen no option of the lock.
func (p *Protection) withoutBlame(err error) error {
	if !errors.Is(err, lock.ErrInvalid) {
		return err
	}
	return p.internalError(err, "The lock service does not accept the Options of a Protection")
}

// onEnd calls f when ctx ends, unless stop is called before. Call stop once; it waits for f.
func onEnd(ctx context.Context, f func()) (stop func()) {
	done := make(chan struct{})
	remove := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() {
		if !remove() {
			<-done
		}
	}
}

// interrupt makes a handler whose context has ended return soon, also from a read of the body. If the
// handler takes too long, interrupt leaves the lock for the rest of its ttl: the handler may still write.
func (p *Protection) interrupt(ctx context.Context, held *lock.Held, answer *answerWriter) {
	cause := context.Cause(ctx)
	if !isLoss(cause) {
		return
	}
	answer.stopReading()
	if errors.Is(cause, errTooLong) {
		p.config.Logger.Info("A request takes longer than MaxDuration; its lock is no longer renewed", "lock", held.Key())
		_ = held.Detach() // The end of the request tells of a loss.
	}
}

// end ends the hold of a request, whose context is ctx. It leaves a lock of which the client has the token,
// and releases any other one.
func (p *Protection) end(ctx context.Context, key string, held *lock.Held, hasToken bool) {
	var err error
	switch {
	case hasToken:
		err = held.Detach()
	case errors.Is(context.Cause(ctx), errTooLong): // The hold is detached.
		err = p.locks.Release(ctx, key, lock.Proof{Owner: held.Owner()})
	default:
		err = held.Release(ctx)
	}
	if err != nil && !errors.Is(err, lock.ErrReleased) {
		p.config.Logger.Error(err, "Lock of a request was lost or could not be released", "lock", held.Key())
	}
}

// lossOf returns why a request has lost its lock, or nil.
func lossOf(ctx context.Context, held *lock.Held) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTooLong) {
		return cause
	}
	if reason := held.Err(); isLoss(reason) {
		return reason
	}
	return nil
}

// isLoss reports whether a hold has ended by itself, and not by the handler.
func isLoss(reason error) bool {
	return reason != nil && !errors.Is(reason, lock.ErrReleased) && !errors.Is(reason, lock.ErrDetached)
}

// lossAnswer returns what the client is told about a lock that was lost while its request was served.
func lossAnswer(loss error, hasToken bool) error {
	switch {
	case errors.Is(loss, errTooLong):
		return problems.New(problems.Unavailable, "The request took longer than it may under a lock; what it has changed is not known").Soon()
	case hasToken && errors.Is(loss, lock.ErrNotHeld):
		return errEnded("The lock ended while the request was being served; what it has changed is not known")
	}
	return problems.New(problems.Unavailable, "The lock was lost while the request was being served; what it has changed is not known").Soon()
}

type heldKey struct{}

// FromContext returns the lock that a request runs under, for the handler of [Protection.Handler]. It
// returns false for requests that need none.
func FromContext(ctx context.Context) (*lock.Held, bool) {
	held, ok := ctx.Value(heldKey{}).(*lock.Held)
	return held, ok
}
