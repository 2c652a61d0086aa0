package locktest

import (
	"context"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Verb names a method of a [Backend].
type Verb string

// The methods of a Backend.
const (
	Acquire      Verb = "acquire"
	Renew        Verb = "renew"
	Release      Verb = "release"
	ForceRelease Verb = "forceRelease"
	Get          Verb = "get"
	List         Verb = "list"
	Watch        Verb = "watch"
)

// Call is one call of a method of a [Backend], with the arguments as the caller passed them.
type Call struct {
	Verb      Verb
	Namespace string
	// Key is empty for a List.
	Key v1alpha1.FullKey
	// Request is that of an Acquire.
	Request lock.Request
	// Proof is that of a Renew or a Release.
	Proof lock.Proof
	// Reason is that of a ForceRelease.
	Reason string
}

// Hook is run by the goroutine of a call, with its context. It may delay the call, fail it,
// and use the Backend.
type Hook func(ctx context.Context, call Call) error

// Hooks are run around the calls of a [Backend]. Nil hooks do nothing.
type Hooks struct {
	// Before is run ahead of each call. If it fails, its error is the answer, and nothing
	// else happens.
	Before Hook
	// Waiting is run when an Acquire has joined the queue of a lock that is held. If it
	// fails, its error ends the wait; for [lock.ErrTimeout], the answer names the holder as
	// at the end of any wait.
	Waiting Hook
	// After is run after each call that succeeded. If it fails, its error is the answer in
	// place of the one that was lost; what the call did stays.
	After Hook
}

// WithHooks sets the hooks.
func WithHooks(hooks Hooks) Option {
	return func(b *Backend) { b.hooks = hooks }
}

// SetHooks replaces the hooks. Calls under way keep those that they began with.
func (b *Backend) SetHooks(hooks Hooks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks = hooks
}

// Failing returns a hook that fails the calls of one method.
func Failing(verb Verb, err error) Hook {
	return func(_ context.Context, call Call) error {
		if call.Verb == verb {
			return err
		}
		return nil
	}
}

// WithRecord has the Backend record its calls, see [Backend.Calls].
func WithRecord() Option {
	return func(b *Backend) { b.isRecording = true }
}

// Calls returns the calls since it was last called, in the order in which they began. It
// needs [WithRecord].
func (b *Backend) Calls() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *Backend) begin(call Call) Hooks {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRecording {
		b.calls = append(b.calls, call)
	}
	return b.hooks
}

// do runs a method between its hooks.
func do[T any](ctx context.Context, b *Backend, call Call, method func(Hooks) (T, error)) (T, error) {
	var none T
	hooks := b.begin(call)
	if err := hooks.Before.run(ctx, call); err != nil {
		return none, err
	}
	// A release is carried out even if the caller has gone.
	if err := ctx.Err(); err != nil && call.Verb != Release && call.Verb != ForceRelease {
		return none, err
	}
	answer, err := method(hooks)
	if err == nil {
		err = hooks.After.run(ctx, call)
	}
	if err != nil {
		return none, err
	}
	return answer, nil
}

func (h Hook) run(ctx context.Context, call Call) error {
	if h == nil {
		return nil
	}
	return h(ctx, call)
}
