package lockhttp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
)

// DefaultMaxTTL is the longest ttl that clients may ask for, and the longest time of one request under a
// lock, unless configured otherwise.
const DefaultMaxTTL = 30 * time.Minute

// Config configures a [Protection].
type Config struct {
	// Client takes the locks. Required.
	Client *lock.Client
	// Key returns the key of the lock of a resource, for requests about the resource and about its
	// lock. An error means that the request names no resource; it is answered with 400 and the text
	// of the error. So is a key that [v1alpha1.ValidateKey] refuses, if the request takes the lock. Required.
	Key func(*http.Request) (string, error)
	// Options are those of every lock. A write without a token does not wait for the lock unless
	// [lock.WithWait] is among them. The owner token, and the ttl of locks that clients acquire, are
	// not chosen by options.
	Options []lock.Option
	// MaxTTL bounds the ttl_seconds of clients, from a millisecond on. The service must allow it. Zero
	// means [DefaultMaxTTL].
	MaxTTL time.Duration
	// MaxDuration bounds the time of one request under a lock, counted from when it has the lock. Then its
	// context ends, and the lock is no longer renewed. A lock of which the client has no token is
	// released when the handler returns, but ends at the latest when the rest of its ttl has passed, although
	// the handler may still run. Zero means [DefaultMaxTTL].
	MaxDuration time.Duration
	// MaxWait bounds the wait_seconds of clients. Zero means that none may wait.
	MaxWait time.Duration
	// Clock tells how long a lock is held yet, for Retry-After. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger gets what clients are not told, such as why the lock service is unavailable. Zero
	// discards.
	Logger logr.Logger
}

// Protection puts resources behind locks. Safe for concurrent use.
type Protection struct {
	config Config
	// locks is the client with the options of the config as defaults.
	locks *lock.Client
	// writers is locks for writes without a token, which do not wait unless the options say so.
	writers *lock.Client
}

// New returns a Protection, or an error that says what is wrong with config.
func New(config Config) (*Protection, error) {
	if config.MaxTTL == 0 {
		config.MaxTTL = DefaultMaxTTL
	}
	if config.MaxDuration == 0 {
		config.MaxDuration = DefaultMaxTTL
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	switch {
	case config.Client == nil || config.Key == nil:
		return nil, errors.New("lockhttp: Client and Key are required")
	case config.MaxTTL < rules.MinTTL || config.MaxTTL > v1alpha1.MaxTTL:
		return nil, fmt.Errorf("lockhttp: MaxTTL must be from %s to %s", rules.MinTTL, v1alpha1.MaxTTL)
	case config.MaxDuration < 0 || config.MaxWait < 0:
		return nil, errors.New("lockhttp: MaxDuration and MaxWait must not be negative")
	}
	return &Protection{
		config: config, locks: config.Client.With(config.Options...), writers: config.Client.With(lock.WithWait(0)).With(config.Options...),
	}, nil
}

// keyOf returns the key of the lock that a request is about. A request that takes the lock must have one for new locks.
func (p *Protection) keyOf(r *http.Request, isNew bool) (string, error) {
	validate := v1alpha1.ValidateStoredKey
	if isNew {
		validate = v1alpha1.ValidateKey
	}
	key, err := p.config.Key(r)
	if err == nil {
		err = validate(key)
	}
	if err != nil {
		return "", problems.New(problems.InvalidRequest, "The path names no resource: "+err.Error())
	}
	return key, nil
}

// readProof returns the proof that the token of a request is. A token that was never made for the lock
// is refused without asking the service.
func (p *Protection) readProof(r *http.Request, key string) (lock.Proof, error) {
	given := r.Header.Values(locktoken.Header)
	if len(given) != 1 || given[0] == "" {
		return lock.Proof{}, problems.New(problems.TokenRequired, "The header "+locktoken.Header+" must have the lock_token of the answer to POST, once")
	}
	token, isOfLock := locktoken.Parse(given[0], p.locks.Namespace(), p.locks.FullKey(key))
	if !isOfLock {
		return lock.Proof{}, problems.New(problems.WrongToken, "The lock token was not made for this lock")
	}
	// The secret is of one grant alone. The proof does without the number, which a write moves on that
	// no admission has seen.
	return lock.Proof{Owner: ownerOf(token.Secret)}, nil
}

// ownerOf returns the owner token of a lock: a hash of the secret in the form of a random UUID, which
// every backend accepts, and which tells it that no other acquisition has this owner token.
func ownerOf(secret locktoken.Secret) string {
	return uuid.NewHash(sha256.New(), uuid.Nil, secret[:], 4).String()
}

// errEnded is the problem with a token whose grant has ended.
func errEnded(detail string) error { return problems.New(problems.LockEnded, detail) }

// withToken returns what an error means to a client that has shown a token of the lock. Each grant has an
// owner token of its own: if the lock is held under another one, the grant of the token has ended.
func withToken(err error) error {
	if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
		return errEnded("The grant of this lock token has ended: it expired, was released, or was broken")
	}
	return err
}

// problemOf returns what a client is told about an error.
func (p *Protection) problemOf(ctx context.Context, err error) *problems.Error {
	if problem, ok := errors.AsType[*problems.Error](err); ok {
		return problem
	}
	switch {
	case ctx.Err() != nil: // It explains every other error.
		return problems.New(problems.Unavailable, "The request was cut short").Soon()
	case errors.Is(err, lock.ErrHeld):
		return problems.Held(err, p.config.Clock.Now())
	case errors.Is(err, lock.ErrInvalid):
		if invalid, ok := errors.AsType[*lock.InvalidError](err); ok {
			return problems.New(problems.InvalidRequest, invalid.Error())
		}
		p.config.Logger.Error(err, "The lock service does not accept a request for a lock")
		return problems.New(problems.InvalidRequest, "The lock service does not accept the request; the reason is in the log of the service")
	case errors.Is(err, lock.ErrRefused):
		p.config.Logger.Error(err, "The cluster refuses a lock")
		return problems.New(problems.RefusedByCluster, "The lock is refused; the reason is in the log of the service")
	case errors.Is(err, lock.ErrDoubleLock):
		// The handler of a Protection is inside of another one for the same key.
		return p.internalError(err, "A request is put behind the same lock twice")
	}
	// Also what the service itself lacks a right for.
	p.config.Logger.Error(err, "Locks are unavailable")
	return problems.New(problems.Unavailable, "The lock service is temporarily unavailable").Soon()
}

// internalError logs what is wrong with the service, and returns what a client is told about it.
func (p *Protection) internalError(err error, message string) *problems.Error {
	p.config.Logger.Error(err, message)
	return problems.New(problems.InternalError, "The cause is in the log of the service")
}

// refuse answers with the problem that an error is.
func (p *Protection) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := p.problemOf(r.Context(), err)
	problem.Instance = r.URL.EscapedPath()
	problem.SetHeaders(w.Header())
	// A client that has gone needs no answer.
	_ = write(w, problem.Status, problems.ContentType, problem.Document)
}
