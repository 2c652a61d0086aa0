package robustness_test

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of one lock, for porcupine. porcupine looks for an order of all operations on a
// key in which each takes effect at one instant between its call and its return, and in
// which the lock behaves as a lock. If no such order exists, that is a violation.
//
// # Time
//
// porcupine knows the order of calls and returns and no clock, but a lock ends by the
// clock. So each step carries its interval, and the state carries now: the earliest
// instant at which the latest step can have taken effect. A step that takes effect at
// the earliest instant t, because of its own call or because it needs the ttl of the
// holder to have passed, moves now to max(now, t), and is possible only if that is not
// after its own return. All such conditions are lower bounds by constants, so an order
// has instants for all its steps exactly if this earliest choice works: taking a step later
// than necessary never helps one that follows.
//
// The limits are chosen so that the model accepts every correct behaviour:
//
//   - A replica stamps a grant after the client sent the request. So the lock lives, by
//     the clock of the one process that all clients share, until sent+ttl at least. No
//     other client may take it before. The holder counts on that.
//   - The replica stamps the grant before etcd commits the write. So the lock lives until
//     the return of the acquire plus ttl at most, and for others plus the clock skew
//     allowance. After that, no caller is refused because of it and no client renews it.
//     These are upper bounds; the model compares them with the earliest instant of the
//     step, which can only miss a violation, never invent one.
//   - A replica judges a renewal or a release before it sends the write, and the write is
//     conditional on the object that the replica judged. The time limit therefore applies
//     to the call, not to the instant at which it takes effect.
//   - Clocks may be wrong by skew, which is at most the allowance. The allowance covers
//     that for a take-over; the other limits are widened by skew.
//
// # Unanswered operations
//
// An unanswered operation counts as both done and not done. So the model is
// nondeterministic: its step returns the states of both. Operations without a write in
// etcd took no effect and are left out (see steps_test.go).
type model struct {
	// allowance is the clock skew allowance of the replicas.
	allowance time.Duration
	// skew is how wrong the clock of a replica may be.
	skew time.Duration
}

// step is an operation in the terms of the model.
type step struct {
	kind  kind
	owner string
	// call and ret bound the instant at which it took effect.
	call, ret time.Duration
	// ttl belongs to a grant or a renewal. From freeAt on, others may take the lock.
	ttl, freeAt time.Duration
	// heldUntil is the expiry in etcd of a grant that no client was told of: the stamp of a clock that
	// was stepped, until the replica ends it.
	heldUntil time.Duration
	outcome   outcome
	// token belongs to a grant, and to a renewal whose answer contains it.
	token  int64
	holder string
	// lenient says that a replica may not have known the result of its own earlier request,
	// and may believe that this request ended the lock.
	lenient bool
	label   string
}

// cleanup is the end of a grant that no client was told of.
const cleanup kind = "clean-up"

// lockState is the state of one lock between two steps.
type lockState struct {
	now time.Duration
	// owner is empty if the lock has no holder.
	owner string
	// token is that of the latest grant.
	token int64
	// From freeAt on, others may take the lock. By endsBy it has ended.
	freeAt, endsBy time.Duration
}

func (m model) porcupine() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, _ any) []any {
			return m.step(state.(lockState), input.(step))
		},
		DescribeOperation: func(input, _ any) string {
			return input.(step).label
		},
		DescribeState: func(state any) string {
			return state.(lockState).String()
		},
	}
	return nondeterministic.ToModel()
}

func (s lockState) String() string {
	if s.owner == "" {
		return fmt.Sprintf("free, last token %d", s.token)
	}
	return fmt.Sprintf("%s holds token %d until %s at least, %s at most", short(s.owner), s.token, s.freeAt, s.endsBy)
}

// step returns the states that the lock may be in afterwards, none if the step is
// impossible.
func (m model) step(before lockState, step step) []any {
	var after []any
	if step.outcome == unanswered {
		after = append(after, before)
		step.outcome = done
	}
	before.now = max(before.now, step.call)
	for _, state := range m.apply(before, step) {
		if state.now <= step.ret {
			after = append(after, state)
		}
	}
	return after
}

func (m model) apply(state lockState, step step) []lockState {
	switch step.outcome {
	case done:
		return m.succeed(state, step)
	case held, timedOut:
		if state.owner != "" && state.now <= state.endsBy+m.allowance+m.skew {
			return []lockState{state}
		}
	case mismatch:
		if state.owner != "" && state.owner != step.owner {
			return []lockState{state}
		}
	case notFound:
		return m.missing(state, step)
	default:
	}
	return nil
}

func (m model) succeed(state lockState, step step) []lockState {
	switch step.kind {
	case acquire:
		return m.grant(state, step)
	case renew:
		if state.owner == step.owner && step.call <= state.endsBy+m.skew && (step.token == 0 || step.token == state.token) {
			state.freeAt, state.endsBy = step.freeAt, step.ret+step.ttl
			return []lockState{state}
		}
	case release, forceRelease, cleanup:
		return m.end(state, step)
	case status:
		// The owner token of another user's lock is not shown.
		isShown := step.holder == "" || step.holder == state.owner
		if state.owner != "" && isShown && state.now <= state.endsBy+m.skew {
			return []lockState{state}
		}
	}
	return nil
}

// grant is legal on a lock that is free, or whose holder's time has passed.
func (m model) grant(state lockState, step step) []lockState {
	if state.owner != "" {
		state.now = max(state.now, state.freeAt)
	}
	if step.token <= state.token {
		return nil
	}
	return []lockState{{
		now: state.now, owner: step.owner, token: step.token,
		freeAt: step.freeAt, endsBy: max(step.ret+step.ttl, step.heldUntil),
	}}
}

// end is legal for the owner before the ttl has passed, and always for a forced release.
func (m model) end(state lockState, step step) (after []lockState) {
	isHolder := state.owner != "" && (state.owner == step.owner || step.kind == forceRelease)
	if isHolder && (step.kind == cleanup || step.call <= state.endsBy+m.skew) {
		after = append(after, lockState{now: state.now, token: state.token})
	}
	if step.lenient {
		after = append(after, m.missing(state, step)...)
	}
	return after
}

// missing is legal if the lock is free, has another holder, or its ttl has passed.
func (m model) missing(state lockState, step step) []lockState {
	isAsked := state.owner == step.owner || step.kind == forceRelease || step.kind == status
	if state.owner != "" && isAsked {
		state.now = max(state.now, state.freeAt-m.skew)
	}
	return []lockState{state}
}
