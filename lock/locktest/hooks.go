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
	// Request is the request of an Acquire.
	Request lock.Request
	// Proof is the proof of a Renew or a Release.
	Proof lock.Proof
	// Reason is the reason of a ForceRelease, and Precondition its precondition.
	Reason       string
	Precondition lock.Precondition
}

// Hook runs in the goroutine of a call, with its context. It may delay the call, fail it, and use
// the Backend.
type Hook func(ctx context.Context, call Call) error

// Hooks run around the calls of a [Backend]. Nil hooks do nothing.
type Hooks struct {
	// Before runs ahead of each call. If it fails, the call returns its error and does nothing.
	Before Hook
	// Waiting runs when an Acquire has joined the queue of a held lock. If it fails, its error
	// ends the wait; for [lock.ErrTimeout], the answer names the holder as at the end of any wait.
	Waiting Hook
	// After runs after each call that succeeded. If it fails, the call returns its error instead
	// of the answer; the effect of the call stays.
	After Hook
}

// WithHooks sets the hooks.
func WithHooks(hooks Hooks) Option {
	return func(b *Backend) { b.hooks = hooks }
}

// SetHooks replaces the hooks. Calls under way keep their hooks.
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

// WithRecord makes the Backend record its calls, see [Backend.Calls].
func WithRecord() Option {
	return func(b *Backend) { b.isRecording = true }
}

// Calls returns the calls since its last call, in the order in which they began. It needs
// [WithRecord].
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
	// A release completes even if the caller has left.
	if err := ctx.Err(); err != nil && call.Verb != Release {
		if call.Verb == Acquire {
			err = lock.Interrupted(ctx, call.Key, nil)
		}
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
