package lock

import (
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// DefaultTTL is the ttl of locks that a [Client] acquires without [WithTTL]. With automatic
// renewal it only determines how soon other callers can acquire the lock of a holder that died.
const DefaultTTL = 30 * time.Second

// DefaultReleaseTimeout is how long a release takes at most without [WithReleaseTimeout].
const DefaultReleaseTimeout = 2 * OperationTimeout

// Option changes how a [Client] acquires or reads locks. Options given to [NewClient] or [Client.With] are
// defaults, of which each method takes those that concern it; options of a call override them. A call with an
// option that does not concern its method is refused with [ErrInvalid]:
//
//   - [WithScope] and [WithFunction] concern every method but [Client.List].
//   - [WithTTL], [WithoutRenewal] and [WithClock] concern [Client.Acquire], [Client.TryAcquire], [Client.Do] and
//     [Client.Resume], and [WithReleaseTimeout] these and [Client.Release].
//   - [WithWait], [WithPriority], [WithReason], [WithHolderRef], [WithReleaseDelay] and [WithRetry] concern Acquire, TryAcquire and Do, and
//     [WithOwner] these and List.
//   - [WithOrderCheck] concerns Acquire, TryAcquire and Do. Of all of these, [Client.AcquireAll] and [Client.DoAll] take
//     those of Acquire but WithRetry, and [WithoutHoldAndWait].
//   - [WithKeys] and [WithRaw] concern [Client.Get] and List.
//   - [WithFencingToken] concerns [Client.ForceRelease].
type Option func(*settings)

// settings are the options of one call.
type settings struct {
	// given are the options of the call itself, without the defaults of the client.
	given     optionSet
	request   Request
	isRenewed bool
	retry     *RetryPolicy
	isRaw     bool
	hasKeys   bool
	// releaseTimeout is more than zero.
	releaseTimeout time.Duration
	clock          clock.WithTicker
	// isStrict says that no lock is kept while another one is waited for.
	isStrict bool
	// isOrderChecked says that no lock is waited for that comes before one of the context.
	isOrderChecked bool
	// precondition is that of a forced release.
	precondition Precondition
	// resumed proves the lock that is taken up, nil if one is acquired.
	resumed *Proof
}

// WithScope sets the scope in which requests contend for the key. The default is the namespace,
// [v1alpha1.ScopeGlobal].
func WithScope(scope v1alpha1.Scope) Option {
	return func(s *settings) {
		s.given |= optionScope
		s.request.Scope = scope
	}
}

// WithFunction makes the key belong to the function: only requests for a key of the same function
// contend. It implies [v1alpha1.ScopeFunction].
func WithFunction(function string) Option {
	return func(s *settings) {
		s.given |= optionFunction
		s.request.Scope = v1alpha1.ScopeFunction
		s.request.Function = function
	}
}

// WithTTL sets how long the lock lives unless it is renewed: at least a millisecond and at most
// what the service allows, usually 24 hours. Zero means [DefaultTTL]. Below about a second, a slow answer of
// the API server can end the lock before it is renewed.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) {
		s.given |= optionTTL
		s.request.TTL = ttl
	}
}

// WithWait bounds how long [Client.Acquire] waits for a holder. Zero means not at all. The default
// is to wait until the context ends.
func WithWait(wait time.Duration) Option {
	return func(s *settings) {
		s.given |= optionWait
		s.request.Wait = max(wait, 0)
	}
}

// WithPriority says before which other callers [Client.Acquire] gets a lock that it has to wait for: before those of
// lower priorities, whenever they came. Callers of the same priority get it in the order in which they came. The default
// is 0. A priority above 0 needs the verb prioritize on locks in the namespace: a façade refuses one that the caller has
// no right to with [ErrForbidden]. An engine in the caller's own process orders its own callers alone, and asks for no
// right.
func WithPriority(priority int32) Option {
	return func(s *settings) {
		s.given |= optionPriority
		s.request.Priority = priority
	}
}

// WithOwner sets the owner token, 1 to 512 bytes. Any caller that knows the token may renew and
// release the lock; it must be unguessable. By default, or if it is empty, every acquisition has
// its own token, a UUID v4.
func WithOwner(owner string) Option {
	return func(s *settings) {
		s.given |= optionOwner
		s.request.Owner = owner
	}
}

// WithOrderCheck refuses with [ErrLockOrder] to wait for a lock under the context of one that comes after it, by namespace
// and full key. Programs that acquire locks one after the other, all of them in this order, never wait for each other in a
// circle. Locks of another backend do not count. A call that does not wait may try any lock. [Client.AcquireAll] needs no
// order among its own keys.
func WithOrderCheck() Option {
	return func(s *settings) {
		s.given |= optionOrderCheck
		s.isOrderChecked = true
	}
}

// WithoutHoldAndWait has [Client.AcquireAll] release all that it has before it waits, each time. So such a call waits in no
// circle, unless its caller holds other locks. The price is that it may wait for as long as others take its locks in turn, with two writes
// for each lock that it releases.
func WithoutHoldAndWait() Option {
	return func(s *settings) {
		s.given |= optionHoldAndWait
		s.isStrict = true
	}
}

// WithReason says why the lock is held, for people; at most 1024 characters.
func WithReason(reason string) Option {
	return func(s *settings) {
		s.given |= optionReason
		s.request.Reason = reason
	}
}

// WithoutRenewal turns automatic renewal off: unless the caller calls [Held.Renew], the lock ends
// after its ttl.
func WithoutRenewal() Option {
	return func(s *settings) {
		s.given |= optionRenewal
		s.isRenewed = false
	}
}

// WithRetry repeats failed attempts. The default is one attempt.
func WithRetry(policy RetryPolicy) Option {
	return func(s *settings) {
		s.given |= optionRetry
		s.retry = &policy
	}
}

// WithReleaseTimeout bounds how long [Held.Release], the end of [Client.Do] and [Client.Release] wait for
// an answer, since they go on after their context has ended. After that they return an error that matches
// [ErrUnavailable], and the lock may be released yet. Zero or less, and the default, mean
// [DefaultReleaseTimeout].
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) {
		s.given |= optionReleaseTimeout
		s.releaseTimeout = DefaultReleaseTimeout
		if timeout > 0 {
			s.releaseTimeout = timeout
		}
	}
}

// WithRaw makes diagnostics return keys and owner tokens instead of their fingerprints. The owner
// token of a live lock suffices to release it: do not log it.
func WithRaw() Option {
	return func(s *settings) {
		s.given |= optionRaw
		s.isRaw = true
	}
}

// WithKeys makes diagnostics return keys in place of their fingerprints. Owner tokens stay fingerprints.
func WithKeys() Option {
	return func(s *settings) {
		s.given |= optionKeys
		s.hasKeys = true
	}
}

// WithFencingToken limits [Client.ForceRelease] to the grant with this number, such as that of an [Info]: if another
// grant holds the lock by now, nothing is done. Zero, and the default, is any grant.
func WithFencingToken(token int64) Option {
	return func(s *settings) {
		s.given |= optionFencingToken
		s.precondition.FencingToken = token
	}
}

// WithClock sets the clock for deadlines, renewals and retries. Nil, and the default, is the real
// clock.
func WithClock(clock clock.WithTicker) Option {
	return func(s *settings) {
		s.given |= optionClock
		s.clock = clock
	}
}
