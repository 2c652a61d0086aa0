package lockhttp

import (
	"context"
	"errors"
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
// with the lock, and [context.Cause] says why. If the lock is lost before h has begun its answer, the client
// is told so in its place: by 410 if it has shown a token and the grant has ended, and else by 503. What
// h did until then may have happened.
func (p *Protection) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			h.ServeHTTP(w, r)
		default:
			p.serveLocked(w, r, h)
		}
	})
}

func (p *Protection) serveLocked(w http.ResponseWriter, r *http.Request, h http.Handler) {
	_, hasToken := r.Header[locktoken.Header]
	held, err := p.hold(r, hasToken)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	// Deferred: a panic in h ends the hold, too.
	defer p.end(r.Context(), held, hasToken)
	answer := newAnswerWriter(w)
	served := r.WithContext(context.WithValue(held.Context(), heldKey{}, held)) //nolint:contextcheck // it descends from that of the request
	// The server removes the files of the form that its own request has.
	defer func() { r.MultipartForm = served.MultipartForm }()
	h.ServeHTTP(answer, served)
	if loss := held.Err(); isLoss(loss) && !answer.hasBegun {
		answer.dropHeaders()
		p.refuse(w, r, lossAnswer(loss, hasToken))
	}
}

// hold takes the lock for a request.
func (p *Protection) hold(r *http.Request, hasToken bool) (*lock.Held, error) {
	key, err := p.keyOf(r)
	if err != nil {
		return nil, err
	}
	if !hasToken {
		held, err := p.config.Client.Acquire(r.Context(), key, p.options([]lock.Option{lock.WithWait(0)}, lock.WithOwner(""))...)
		return held, p.withoutBlame(err)
	}
	proof, err := p.readProof(r, key)
	if err != nil {
		return nil, err
	}
	// For the ttl that the client has asked for.
	held, err := p.config.Client.Resume(r.Context(), key, proof, p.options(nil, lock.WithTTL(0))...)
	return held, p.withoutBlame(withToken(err))
}

// withoutBlame returns what an error means to a client that has chosen no option of the lock.
func (p *Protection) withoutBlame(err error) error {
	if !errors.Is(err, lock.ErrInvalid) {
		return err
	}
	return p.internalError(err, "The lock service does not accept the Options of a Protection")
}

// end ends a hold. It leaves a lock of which a client has the token, and releases any other one.
func (p *Protection) end(ctx context.Context, held *lock.Held, hasToken bool) {
	var err error
	if hasToken {
		err = held.Detach()
	} else {
		err = held.Release(ctx)
	}
	if err != nil && !errors.Is(err, lock.ErrReleased) {
		p.config.Logger.Error(err, "Lock of a request was lost or could not be released", "lock", held.Key())
	}
}

// isLoss reports whether a hold has ended by itself, and not by the handler.
func isLoss(reason error) bool {
	return reason != nil && !errors.Is(reason, lock.ErrReleased) && !errors.Is(reason, lock.ErrDetached)
}

// lossAnswer returns what the client is told about a lock that was lost while its request was served.
func lossAnswer(loss error, hasToken bool) error {
	if hasToken && errors.Is(loss, lock.ErrNotHeld) {
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
