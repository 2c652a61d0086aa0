package lock

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// OperationTimeout is how long the requests of one acquire, renewal or release may take,
// without the wait for the holder, and with the read-backs of unanswered writes.
const OperationTimeout = 5 * time.Second

// WaitForever is a wait that only the end of the context ends.
const WaitForever time.Duration = 1<<63 - 1

// Request asks for a lock.
type Request struct {
	rules.Acquisition
	// Wait is how long to wait for the holder of the lock, measured from the call. Zero
	// means not at all; [WaitForever] as long as the context lives. A write that is
	// under way at its end is followed to its end, so that a wait that is shorter than
	// a write still acquires a free lock.
	Wait time.Duration
}

// Validate reports what cannot be granted however long it waits: a negative wait, and
// what [rules.Acquisition.Validate] reports. The error is an [*InvalidError].
func (r *Request) Validate(limits rules.Limits) error {
	if r.Wait < 0 {
		return &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("wait"), r.Wait.String(), "must not be negative")}}
	}
	return r.Acquisition.Validate(limits)
}

// Proof is what a caller shows to renew or to release a lock.
type Proof = rules.Proof

// Filter selects locks. Its zero value selects all.
type Filter struct {
	// Owner selects the locks that are held under this owner token, unless it is empty.
	Owner string
}

// Change is a state that a lock has come to.
type Change struct {
	// Lock is the lock as stored, or, if IsGone, as it was last seen, with the
	// resourceVersion of its end as far as that is known. It must not be modified.
	Lock *v1alpha1.Lock
	// IsGone says that the object was deleted: the lock is free.
	IsGone bool
}

// Backend carries out what is to be done about locks. There are three: package lock/engine asks
// the API server, package facade/client asks a façade, and package lock/locktest
// keeps locks in memory for tests. Implementations are safe for concurrent use.
//
// Every method returns an error that matches [ErrUnavailable] if the service could
// not be asked, and the error of ctx if that ended first.
type Backend interface {
	// Acquire takes the lock and returns it as stored, with everything stamped. The
	// fencing token is that of [v1alpha1.Lock.FencingToken]. If ctx ends first, the lock
	// is not held on behalf of the caller. The error matches [ErrHeld], [ErrTimeout],
	// [ErrInvalid] or, if the lock expired before it could be returned, [ErrExpired].
	Acquire(ctx context.Context, namespace string, request Request) (*v1alpha1.Lock, error)
	// Renew replaces the remaining time of the lock by a whole ttl and returns it as
	// stored. Zero means the ttl that the lock has. The error matches [ErrNotHeld],
	// [ErrExpired], [ErrOwnerMismatch] or [ErrInvalid].
	Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof Proof, ttl time.Duration) (*v1alpha1.Lock, error)
	// Release ends the lock if the proof entitles to it. It is carried out even if ctx
	// ends meanwhile. The error matches [ErrNotHeld], [ErrExpired] or
	// [ErrOwnerMismatch].
	Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof Proof) error
	// ForceRelease ends the lock of any holder, and records the reason. The error
	// matches [ErrNotHeld].
	ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string) error
	// Get returns the lock if it is held; otherwise the error matches [ErrNotHeld].
	Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error)
	// List returns the held locks of a namespace, ordered by name.
	List(ctx context.Context, namespace string, filter Filter) ([]v1alpha1.Lock, error)
	// Watch sends what the lock comes to, beginning with its present state, which is
	// IsGone with a nil Lock if it is free. States that follow each other faster than
	// they are received are left out, the latest never. The channel is closed when ctx
	// or the backend ends. The error matches [errors.ErrUnsupported] where a backend
	// cannot watch.
	Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan Change, error)
}
