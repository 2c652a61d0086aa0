package lock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// Held is an acquired lock. It ends by [Held.Release] or [Held.Detach], or because it expired, was
// released by force, or could not be renewed in time. [Held.Done] reports when, [Held.Err] why. A process may
// learn of the end too late: let the receiver of each write check the [Held.FencingToken].
//
// Every Held must be released or detached. Otherwise its lock stays for its ttl and, unless it was acquired
// [WithoutRenewal], for as long as the process lives. Safe for concurrent use.
type Held struct {
	client *Client
	clock  clock.WithTicker
	key    v1alpha1.FullKey
	// proof is that of renewals and of the release.
	proof Proof
	// isResumed says that others may have the proof, too, and release the lock.
	isResumed bool
	// isOwnerUnique says that no other caller has the owner token.
	isOwnerUnique bool
	token         int64
	isRenewed     bool
	// releaseTimeout bounds a release.
	releaseTimeout time.Duration
	// grant identifies the grant; it does not change.
	grant heldGrant

	ctx    context.Context // for the caller
	cancel context.CancelCauseFunc
	done   chan struct{}
	// calls is the context of requests on behalf of the lock; it ends with the lock.
	calls     context.Context
	stopCalls context.CancelFunc
	// routines are the goroutines of this lock; Release waits for them.
	routines sync.WaitGroup
	// renewing is a semaphore of one, held by the goroutine that sends a renewal.
	renewing chan struct{}
	// wake tells the loop that the deadline or the next renewal has changed.
	wake chan struct{}
	// isSeen says that the watch or a read has shown the grant.
	isSeen atomic.Bool

	mu sync.Mutex
	// stored is the lock as the last answer to an acquire or a renewal has it.
	stored   *v1alpha1.Lock
	ttl      time.Duration
	deadline time.Time
	renewal  renewals
	// isRenewingItself says that an automatic renewal is under way or about to be.
	isRenewingItself bool
	err              error

	release releasing
}

// heldGrant distinguishes a grant from all others of the same key.
type heldGrant struct {
	uid             types.UID
	acquireTime     *v1alpha1.Timestamp
	resourceVersion string
}

// newHeld returns the lock that was granted to a request sent at the given time.
func newHeld(ctx context.Context, client *Client, settings settings, lock *v1alpha1.Lock, sent time.Time) (*Held, error) {
	token, err := lock.FencingToken()
	if err != nil {
		return nil, err
	}
	held := &Held{
		client:        client,
		clock:         settings.clock,
		key:           settings.request.FullKey(),
		proof:         Proof{Owner: lock.Spec.Owner},
		isResumed:     settings.resumed != nil,
		isOwnerUnique: settings.request.Owner == "" && settings.resumed == nil,
		token:         token,
		isRenewed:     settings.isRenewed,

		releaseTimeout: settings.releaseTimeout,
		grant: heldGrant{
			uid: lock.UID, acquireTime: lock.Spec.AcquireTime,
			// A façade tells the number of the grant, which is the version that it began with.
			resourceVersion: cmp.Or(lock.ResourceVersion, strconv.FormatInt(token, 10)),
		},
		done:     make(chan struct{}),
		renewing: make(chan struct{}, 1),
		wake:     make(chan struct{}, 1),
		stored:   lock,
	}
	if held.isResumed {
		held.proof.Holder = settings.resumed.Holder
	}
	if !held.isOwnerUnique {
		held.proof.FencingToken = token // Another grant may have the owner token, too.
	}
	held.prolong(sent, ttlOf(lock, settings.request.TTL))
	held.ctx, held.cancel = context.WithCancelCause(withHeldLock(ctx, held))
	held.calls, held.stopCalls = context.WithCancel(context.WithoutCancel(ctx))
	return held, nil
}

// ttlOf returns the ttl that was granted.
func ttlOf(lock *v1alpha1.Lock, asked time.Duration) time.Duration {
	if lock.Spec.TTL == nil {
		return asked
	}
	return lock.Spec.TTL.Duration
}

// Key returns the full key of the lock.
func (h *Held) Key() v1alpha1.FullKey { return h.key }

// Owner returns the owner token. Any caller that knows it may release the lock.
func (h *Held) Owner() string { return h.proof.Owner }

// String returns the full key, without the owner token: it is safe to log.
func (h *Held) String() string { return string(h.key) }

// FencingToken returns the number of this grant. It is larger than that of any earlier grant of
// the key and does not change. Send it along with every write that the lock protects, and let the
// receiver refuse numbers smaller than the largest it has seen. Nothing else stops a holder that
// was paused while its lock ended.
func (h *Held) FencingToken() int64 { return h.token }

// Deadline returns when the lock ends unless it is renewed, on the clock of this process. It
// counts from just before the request was sent: the service never ends the lock earlier, except as
// [ErrForceReleased] says.
func (h *Held) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// Done is closed when the lock has ended or may have ended, at the latest at the deadline or, if the
// machine is suspended meanwhile, within a second of its return.
func (h *Held) Done() <-chan struct{} { return h.done }

// Context returns a context for work under the lock. It has the values of the context that the
// lock was acquired with and ends with it or with the lock. If the lock ends first,
// [context.Cause] returns the error of [Held.Err]. Acquiring the same key with this context
// returns [ErrDoubleLock].
func (h *Held) Context() context.Context {
	_ = h.Err() // Err reads the clock.
	return h.ctx
}

// Err returns nil while the lock is held, and then always the same error, which matches
//
//   - [ErrReleased] after [Held.Release] was called,
//   - [ErrDetached] after [Held.Detach] was called,
//   - [ErrExpired] if the ttl ran out,
//   - [ErrUnavailable] if the lock could not be renewed in time, as when the machine was suspended,
//   - [ErrForceReleased] if the lock was ended by force, or because its holder or namespace has ended,
//   - [ErrTakenOver] if another holder has it,
//   - [ErrNotHeld] alone if a lock that was resumed, or acquired with [WithOwner], has ended before its
//     deadline: by force, or by another that has its owner token.
//
// Err reads the clock. It is right even in a process that was stopped, or on a machine that was
// suspended, and has not closed [Held.Done] yet. By the wall clock alone it ends a lock whose deadline
// has passed meanwhile, and the same goes for a wall clock that was set forward.
func (h *Held) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkDeadline(h.clock.Now())
	return h.err
}

// hasEnded reports whether Done is closed, at less cost than Err.
func (h *Held) hasEnded() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// end ends the hold with the given error, unless it has ended.
func (h *Held) end(reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(reason)
}

func (h *Held) endLocked(reason error) {
	if h.err != nil {
		return
	}
	h.err = reason
	close(h.done)
	h.cancel(reason)
	h.stopCalls()
}

// checkDeadline ends the hold if its deadline has passed.
func (h *Held) checkDeadline(now time.Time) {
	if h.err != nil || servertime.Left(h.deadline, now) > 0 {
		return
	}
	switch {
	case now.Before(h.deadline):
		// If the clock was merely set, the service still has the lock, for which Release is sent.
		h.endLocked(fmt.Errorf("%s could not be renewed in time, since the machine was suspended or its clock was set: %w", h.key, ErrUnavailable))
	case h.renewal.err != nil:
		h.endLocked(fmt.Errorf("%s could not be renewed in time: %w", h.key, asUnavailable(h.renewal.err)))
	case h.renewal.isUnderWay:
		h.endLocked(fmt.Errorf("%s could not be renewed in time: %w", h.key, ErrUnavailable))
	default:
		h.endLocked(fmt.Errorf("%s: %w", h.key, ErrExpired))
	}
}

// prolong sets the deadline after a request that was sent at the given time. The caller holds the
// mutex, or no other goroutine knows the lock.
func (h *Held) prolong(sent time.Time, ttl time.Duration) {
	h.ttl = ttl
	h.deadline = sent.Add(ttl)
	h.renewal = renewals{next: sent.Add(RenewalPause(ttl, 0))}
}
