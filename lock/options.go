package lock

import (
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// DefaultTTL is the ttl of locks that a [Client] acquires without [WithTTL]. Renewed
// automatically, it only says how soon others may go on after a holder has died.
const DefaultTTL = 30 * time.Second

// Option changes how a [Client] acquires or looks at locks. Options given to
// [NewClient] are defaults; options of a call override them. What a method has no
// use for it ignores.
type Option func(*settings)

// settings are what a call goes by.
type settings struct {
	request   Request
	isRenewed bool
	retry     *RetryPolicy
	isRaw     bool
	clock     clock.WithTicker
}

// WithScope says who contends for the key. Without it that is everyone in the
// namespace, [v1alpha1.ScopeGlobal].
func WithScope(scope v1alpha1.Scope) Option {
	return func(s *settings) { s.request.Scope = scope }
}

// WithFunction makes the key one of the function: only requests for a key of the
// same function contend. It implies [v1alpha1.ScopeFunction].
func WithFunction(function string) Option {
	return func(s *settings) {
		s.request.Scope = v1alpha1.ScopeFunction
		s.request.Function = function
	}
}

// WithTTL is how long the lock lives unless it is renewed: at least a millisecond and
// at most what the service allows, usually 24 hours. Zero means [DefaultTTL].
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) { s.request.TTL = ttl }
}

// WithWait bounds how long [Client.Acquire] waits for a holder. Zero means not at all;
// without it only the end of the context ends the wait.
func WithWait(wait time.Duration) Option {
	return func(s *settings) { s.request.Wait = max(wait, 0) }
}

// WithOwner sets the owner token, 1 to 512 bytes. A caller that knows it may renew and
// release the lock, so it must be unguessable. Without it, or if it is empty, every
// acquisition has a token of its own, a UUID v4.
func WithOwner(owner string) Option {
	return func(s *settings) { s.request.Owner = owner }
}

// WithReason tells people why the lock is held; at most 1024 characters.
func WithReason(reason string) Option {
	return func(s *settings) { s.request.Reason = reason }
}

// WithoutRenewal leaves renewing to the caller: unless [Held.Renew] is called, the
// lock ends after its ttl.
func WithoutRenewal() Option {
	return func(s *settings) { s.isRenewed = false }
}

// WithRetry has failed attempts repeated. Without it there is one attempt.
func WithRetry(policy RetryPolicy) Option {
	return func(s *settings) { s.retry = &policy }
}

// WithRaw has diagnostics tell keys and owner tokens instead of their hashes. The
// owner token of a live lock is all it takes to release it: do not log it.
func WithRaw() Option {
	return func(s *settings) { s.isRaw = true }
}

// WithClock sets the clock that deadlines, renewals and retries go by. Without it, or
// if it is nil, that is the real clock.
func WithClock(clock clock.WithTicker) Option {
	return func(s *settings) { s.clock = clock }
}
