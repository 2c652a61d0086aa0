package lockhttp

import (
	"context"
	"errors"
	"net/http"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
)

// Lock is a lock that is held, as clients are told it.
type Lock struct {
	// LockToken proves the grant. Only the answer to POST has it.
	LockToken string `json:"lock_token,omitempty"`
	// FencingToken is the number of the grant. Zero if it is no longer known.
	FencingToken int64 `json:"fencing_token,omitempty"`
	// Holder is the identity of the service that acquired the lock.
	Holder string `json:"holder"`
	Reason string `json:"reason,omitempty"`
	// TTLSeconds is zero for a lock that a manifest holds until a fixed time.
	TTLSeconds float64 `json:"ttl_seconds,omitempty"`
	AcquiredAt string  `json:"acquired_at"`
	RenewedAt  string  `json:"renewed_at"`
	ExpiresAt  string  `json:"expires_at"`
}

func describe(held lock.Info) Lock {
	return Lock{
		FencingToken: held.FencingToken, Holder: held.Holder, Reason: held.Reason, TTLSeconds: held.TTL.Seconds(),
		AcquiredAt: problems.FormatTime(held.AcquireTime), RenewedAt: problems.FormatTime(held.RenewTime), ExpiresAt: problems.FormatTime(held.ExpireTime),
	}
}

const jsonType = "application/json"

// methods of the handler of locks, as in the header Allow.
const methods = "DELETE, GET, HEAD, POST, PUT"

// LockHandler returns the handler of the locks of the resources:
//
//   - POST acquires the lock: 201 with a [Lock] that has the lock token; 423 if another client holds it.
//     The members of the body are ttl_seconds, which is required, wait_seconds and reason.
//   - PUT with X-Lock-Token renews it: ttl_seconds replaces the remaining time. 200 with a Lock.
//   - DELETE with X-Lock-Token releases it: 204.
//   - GET reads it, and is never blocked: 200 with a Lock; 404 if it is free.
//
// Errors are problem documents (RFC 9457), of which docs/rest.md, section 3, lists the types. As for
// [Protection.Handler], 410 answers a token whose grant has ended, and 403 one that was never made for
// this lock. 400 refuses a header that a client would rely on in vain: If-Match, except for GET, and the
// token for POST, which is only granted if the lock is free. 503 with Retry-After means that the lock
// service did not answer: a renewal or a release may have happened, and can be repeated; a lock that was
// acquired without an answer ends with its ttl.
//
// A PUT for a shorter time, while another request with the token is served, may end the lock before
// that request notices.
func (p *Protection) LockHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.serveLock(w, r); err != nil {
			p.refuse(w, r, err)
		}
	})
}

// serveLock answers a request about a lock, unless it returns an error.
func (p *Protection) serveLock(w http.ResponseWriter, r *http.Request) error {
	var serve func(http.ResponseWriter, *http.Request, string) error
	refused := []string{ifMatchHeader}
	switch r.Method {
	case http.MethodPost:
		serve = p.acquire
		refused = append(refused, locktoken.Header)
	case http.MethodPut:
		serve = p.renew
	case http.MethodDelete:
		serve = p.release
	case http.MethodGet, http.MethodHead:
		serve = p.get
		refused = nil
	default:
		w.Header().Set("Allow", methods)
		return problems.New(problems.MethodNotAllowed, "The method must be one of "+methods)
	}
	if err := refuseHeaders(r.Header, refused); err != nil {
		return err
	}
	key, err := p.keyOf(r, r.Method == http.MethodPost)
	if err != nil {
		return err
	}
	return serve(w, r, key)
}

func (p *Protection) acquire(w http.ResponseWriter, r *http.Request, key string) error {
	wanted, err := p.readAcquisition(w, r)
	if err != nil {
		return err
	}
	secret := locktoken.NewSecret()
	options := []lock.Option{lock.WithOwner(ownerOf(secret)), lock.WithTTL(wanted.ttl), lock.WithWait(wanted.wait), lock.WithoutRenewal()}
	if wanted.reason != "" {
		options = append(options, lock.WithReason(wanted.reason))
	}
	held, err := p.locks.Acquire(r.Context(), key, options...)
	if err != nil {
		return err
	}
	isTold := false
	// Deferred: a panic must not leave a lock of which its client does not know.
	defer func(ctx context.Context) {
		if isTold {
			_ = held.Detach() // The client has been told when it ends.
		} else if err := held.Release(ctx); err != nil {
			p.config.Logger.Error(err, "Lock of which no client knows could not be released", "lock", held.Key())
		}
	}(r.Context())
	if err := r.Context().Err(); err != nil {
		return err
	}
	described := describe(held.Info())
	described.LockToken = locktoken.Token{Secret: secret, FencingToken: held.FencingToken()}.Text(p.locks.Namespace(), held.Key())
	err = write(w, http.StatusCreated, jsonType, described)
	if err == nil {
		// Without it, a failure to send would be known only after the handler has returned.
		err = http.NewResponseController(w).Flush()
	}
	isTold = err == nil || errors.Is(err, http.ErrNotSupported)
	return nil
}

func (p *Protection) renew(w http.ResponseWriter, r *http.Request, key string) error {
	proof, err := p.readProof(r, key)
	if err != nil {
		return err
	}
	ttl, err := p.readRenewal(w, r)
	if err != nil {
		return err
	}
	held, err := p.locks.Resume(r.Context(), key, proof, lock.WithTTL(ttl), lock.WithoutRenewal())
	if err != nil {
		return withToken(err)
	}
	_ = held.Detach() // The client is told when it ends.
	_ = write(w, http.StatusOK, jsonType, describe(held.Info()))
	return nil
}

func (p *Protection) release(w http.ResponseWriter, r *http.Request, key string) error {
	proof, err := p.readProof(r, key)
	if err != nil {
		return err
	}
	if err := p.locks.Release(r.Context(), key, proof); err != nil {
		return withToken(err)
	}
	_ = write(w, http.StatusNoContent, "", nil)
	return nil
}

func (p *Protection) get(w http.ResponseWriter, r *http.Request, key string) error {
	held, err := p.locks.Get(r.Context(), key)
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		return problems.New(problems.LockNotFound, "No client holds the lock")
	case err != nil:
		return err
	}
	_ = write(w, http.StatusOK, jsonType, describe(held))
	return nil
}
