package lock

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// OperationTimeout is how long the requests of one acquire, renewal or release may take, including
// read-backs of unanswered writes, but not the wait for the holder.
const OperationTimeout = 5 * time.Second

// WaitForever is a wait without a limit; only the end of the context ends it.
const WaitForever time.Duration = 1<<63 - 1

// Request asks for a lock.
type Request struct {
	rules.Acquisition
	// Wait is how long to wait for the holder of the lock, measured from the call. Zero means not
	// at all, [WaitForever] until the context ends. A write that is under way when the wait ends
	// is completed: a wait shorter than a write still acquires a free lock.
	Wait time.Duration
	// Since is when the caller came, for a request that is passed on: its place among those that wait.
	// Zero, or a time in the future, means now.
	Since time.Time
	// PlaceSince is since when the caller has its place, for one that another replica has let wait: the bounds on
	// how many wait do not apply to it. Zero means that it is new.
	PlaceSince time.Time
	// IsUnbounded says that the bounds on how many wait do not apply to the caller.
	IsUnbounded bool
	// Priority orders the callers that wait, the highest first; callers of the same priority get the lock in the order
	// in which they came. The default is 0, and every 32-bit integer is valid, as for Jobs. A caller of a lower priority
	// waits for as long as others of higher ones come. It does nothing for a caller that does not wait. Who may have
	// one above 0 is for the door to decide: backends do not ask.
	Priority int32
	// Door is how the caller came, for [Waiter] alone. Optional.
	Door string
}

// Validate reports what makes the request impossible to grant: a negative wait, and what
// [rules.Acquisition.Validate] reports. The error is an [*InvalidError]. Holder is the object that a
// valid request names, or nil.
func (r *Request) Validate(limits rules.Limits) (holder *rules.ValidReference, err error) {
	if r.Wait < 0 {
		return nil, &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("wait"), r.Wait.String(), "must not be negative")}}
	}
	return r.Acquisition.Validate(limits)
}

// Proof proves that a caller may renew or release a lock.
type Proof = rules.Proof

// Precondition limits a forced release.
type Precondition = rules.Precondition

// PreconditionOf returns the last of those that a forced release was given, or none.
func PreconditionOf(given []Precondition) Precondition {
	if len(given) == 0 {
		return Precondition{}
	}
	return given[len(given)-1]
}

// Filter selects locks. Its zero value selects all.
type Filter struct {
	// Owner selects the locks that are held under this owner token. Empty selects all.
	Owner string
}

// Change is a new state of a lock.
type Change struct {
	// Lock is the lock as stored or, if IsGone, as last seen, with the resourceVersion of its end
	// if that is known. It may lack annotations that the service does not read; get the lock to
	// change it. It must not be modified.
	Lock *v1alpha1.Lock
	// IsGone says that the object was deleted: the lock is free.
	IsGone bool
}

// Backend acquires, renews, releases and reads locks. There are three: package lock/engine uses
// the API server, package facade/client uses a façade or joins one to an engine, and package
// lock/locktest keeps locks in memory for tests. Implementations are safe for concurrent use.
//
// Every method returns an error that matches [ErrUnavailable] if the service does not answer, and
// the error of ctx if that ends first. Those that change a lock return an error that matches
// [ErrRefused] if the cluster refuses the change.
type Backend interface {
	// Acquire takes the lock and returns it as stored, with all stamps.
	// [v1alpha1.Lock.FencingToken] returns its fencing token. If ctx ends first, the error is or wraps
	// an [*InterruptedError], and the caller does not hold the lock. A grant that expires before it can be returned is
	// reported as [ErrUnavailable], or as [ErrInvalid] if its ttl is less than 100 ms. The error matches [ErrHeld],
	// [ErrTimeout] or [ErrInvalid].
	Acquire(ctx context.Context, namespace string, request Request) (*v1alpha1.Lock, error)
	// Renew replaces the remaining time of the lock by a whole ttl and returns the lock as stored.
	// A ttl of zero means the one that the lock has. The error matches [ErrNotHeld], [ErrExpired],
	// [ErrOwnerMismatch], [ErrStale] or [ErrInvalid]. It matches [errors.ErrUnsupported] if the
	// backend does not know the limits of the proof, as for Release.
	Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof Proof, ttl time.Duration) (*v1alpha1.Lock, error)
	// Release ends the lock if the proof permits it. It completes even if ctx is cancelled meanwhile, and
	// also if ctx has ended before. A deadline of ctx that is still ahead bounds it: after that the lock
	// may be released yet, and the error matches [ErrUnavailable]. Other errors match [ErrNotHeld], [ErrExpired], [ErrOwnerMismatch] or
	// [ErrStale].
	Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof Proof) error
	// ForceRelease ends the lock of any holder, and records the reason. It completes a write that is
	// under way when ctx ends, and begins none after that. With a precondition it ends no other grant: the condition
	// is judged on the very lock that the write is about. Of several the last counts, see [PreconditionOf]. The error
	// matches [ErrNotHeld], and may match [ErrOtherGrant].
	ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string, preconditions ...Precondition) error
	// Get returns the lock if it is held; otherwise the error matches [ErrNotHeld]. It also matches
	// [ErrExpired] if the lock has expired and its object still exists; such a lock may be kept from
	// callers a moment longer, see [HeldError].
	Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error)
	// List returns the held locks of a namespace, ordered by name.
	List(ctx context.Context, namespace string, filter Filter) ([]v1alpha1.Lock, error)
	// Watch sends the present state of the lock and then each new one. For a free lock the first
	// Change is IsGone with a nil Lock. A receiver that is slower than the changes misses some,
	// but never the latest. A backend that watches a limited number of locks tells nothing of one
	// beyond them until there is room. The channel is closed when ctx or the backend ends. The error
	// matches [errors.ErrUnsupported] if the backend cannot watch.
	Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan Change, error)
}
