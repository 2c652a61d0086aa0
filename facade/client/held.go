package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// Renew implements [lock.Backend]. It asks once: after a lost answer, renewing again
// is up to the caller. Of the limits of a proof it knows the fencing token alone, as does Release. In the place
// of the proof's holder counts whom the façade has authenticated.
func (c *Client) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	operation := c.operation("renew", namespace, key)
	switch {
	case 0 < ttl && ttl < time.Millisecond:
		// It would be rounded up on the way.
		return nil, fmt.Errorf("%s: %w", operation, &lock.InvalidError{Problems: field.ErrorList{
			field.Invalid(field.NewPath("spec", "ttl"), ttl.String(), "must be at least 1ms"),
		}})
	case !canBeHeld(key, proof.Owner):
		return nil, c.mismatch(ctx, operation, namespace, key)
	case isLimitedFurther(proof):
		return nil, fmt.Errorf("%s: %w", operation, errLimitedProof)
	}
	answer, err := c.exchange(ctx, namespace, wire.Renew, wire.KeyArguments{
		Key: sent(key), Owner: proof.Owner, FencingToken: proof.FencingToken, TTL: durationOf(ttl),
	}, c.options.timeout)
	if err != nil {
		return nil, c.failed(ctx, operation, key, err)
	}
	var result wire.Renewed
	if err := decode(answer, &result); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	if !result.Renewed || !isOf(&result.Lock, key, proof.Owner) || !isOfGrant(&result.Lock, proof) {
		return nil, fmt.Errorf("%s: %w", operation, errAnotherLock)
	}
	return lockOf(namespace, &result.Lock)
}

// Release implements [lock.Backend]. After a lost answer it asks again, until the
// timeout of the client. A lock that is then gone is taken to have been released by
// what was not answered. What the façade has refused before it did anything was answered.
func (c *Client) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	operation := c.operation("release", namespace, key)
	switch {
	case !canBeHeld(key, proof.Owner):
		return c.mismatch(ctx, operation, namespace, key)
	case isLimitedFurther(proof):
		return fmt.Errorf("%s: %w", operation, errLimitedProof)
	}
	return c.end(ctx, func(ctx context.Context) error {
		return c.releaseOnce(ctx, namespace, key, proof)
	})
}

// ForceRelease implements [lock.Backend]. It sends one request: another holder may have the lock by
// the time of a second one. If that went unanswered, the lock may have ended all the same. A façade that does not know
// the precondition yet ignores it.
func (c *Client) ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string, preconditions ...lock.Precondition) error {
	operation := c.operation("force release of", namespace, key)
	if !utf8.ValidString(string(key)) {
		return fmt.Errorf("%s: %w", operation, lock.ErrNotHeld)
	}
	arguments := wire.KeyArguments{Key: sent(key), Reason: reason, FencingToken: lock.PreconditionOf(preconditions).FencingToken}
	if _, err := c.exchange(ctx, namespace, wire.ForceRelease, arguments, c.options.timeout); err != nil {
		return c.failed(ctx, operation, key, err)
	}
	return nil
}

func (c *Client) releaseOnce(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	arguments := wire.KeyArguments{Key: sent(key), Owner: proof.Owner, FencingToken: proof.FencingToken}
	if _, err := c.exchange(ctx, namespace, wire.Release, arguments, c.options.timeout); err != nil {
		return outcome(c.operation("release", namespace, key), key, err)
	}
	return nil
}

// end repeats a release until it is answered.
func (c *Client) end(ctx context.Context, release func(context.Context) error) error {
	ctx, cancel := bounded(ctx, c.options.timeout)
	defer cancel()
	backoff := newBackoff()
	var unanswered error // The last one that may have been carried out.
	for {
		err := release(ctx)
		switch {
		case unanswered != nil && errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrExpired):
			return nil
		case unanswered != nil && errors.Is(err, lock.ErrOwnerMismatch):
			// That may have handed the lock on. Whether the owner token was right, the caller knows.
			return fmt.Errorf("%w: an earlier try went unanswered: %w", lock.ErrUnavailable, err)
		case err == nil || !mayRecover(err):
			return err
		}
		if !errors.Is(err, lock.ErrNothingDone) {
			unanswered = err
		}
		if !c.pause(ctx, &backoff) {
			return cmp.Or(unanswered, err)
		}
	}
}

// Get implements [lock.Backend].
func (c *Client) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	return c.get(ctx, c.operation("get", namespace, key), namespace, key)
}

func (c *Client) get(ctx context.Context, operation, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	if !utf8.ValidString(string(key)) {
		return nil, fmt.Errorf("%s: %w", operation, lock.ErrNotHeld)
	}
	state, err := c.status(ctx, namespace, key)
	switch {
	case err != nil:
		return nil, c.failed(ctx, operation, key, err)
	case !state.Locked && state.Expired:
		return nil, fmt.Errorf("%s: %w", operation, lock.ErrExpired)
	case !state.Locked || state.Lock == nil:
		return nil, fmt.Errorf("%s: %w", operation, lock.ErrNotHeld)
	}
	return lockOf(namespace, state.Lock)
}

func (c *Client) status(ctx context.Context, namespace string, key v1alpha1.FullKey) (*wire.State, error) {
	answer, err := c.exchange(ctx, namespace, wire.Status, wire.KeyArguments{Key: sent(key)}, c.options.timeout)
	if err != nil {
		return nil, outcome("status", key, err)
	}
	state := new(wire.State)
	return state, decode(answer, state)
}

// List implements [lock.Backend]. The locks have no owner tokens unless filter names
// one: a token releases the lock.
func (c *Client) List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	locks := []v1alpha1.Lock{}
	arguments := wire.ListArguments{Owner: filter.Owner, Limit: wire.MaxListed}
	for {
		answer, err := c.exchange(ctx, namespace, wire.List, arguments, c.options.timeout)
		if err != nil {
			return nil, c.failed(ctx, "list locks", "", err)
		}
		var result wire.Locks
		if err := decode(answer, &result); err != nil {
			return nil, fmt.Errorf("list locks: %w", err)
		}
		for i := range result.Locks {
			held, err := lockOf(namespace, &result.Locks[i].Lock)
			if err != nil {
				return nil, fmt.Errorf("list locks: %w", err)
			}
			locks = append(locks, *held)
		}
		if result.Continue == "" {
			return locks, nil
		}
		arguments.Continue = result.Continue
	}
}

// Waiters implements [lock.LineReader]; of more than [wire.MaxWaiters], they are the first. An older façade does not tell
// them: then the error matches [errors.ErrUnsupported].
func (c *Client) Waiters(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (waiters []lock.Waiter, isComplete bool, err error) {
	arguments := wire.WaitersArguments{Limit: int64(min(limit, wire.MaxWaiters))}
	if key != "" {
		arguments.Key = sent(key)
	}
	answer, err := c.exchange(ctx, namespace, wire.ListWaiters, arguments, c.options.timeout)
	if problems, ok := errors.AsType[envelope.Errors](err); ok && problems[0].Code == envelope.FunctionNotFound {
		return nil, false, fmt.Errorf("list who waits: the façade does not tell: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, false, c.failed(ctx, "list who waits", key, err)
	}
	var result wire.Waiters
	if err := decode(answer, &result); err != nil {
		return nil, false, fmt.Errorf("list who waits: %w", err)
	}
	waiters = make([]lock.Waiter, 0, len(result.Waiters))
	for index := range result.Waiters {
		waiter, err := waiterOf(namespace, &result.Waiters[index])
		if err != nil {
			return nil, false, fmt.Errorf("list who waits: %w", err)
		}
		waiters = append(waiters, waiter)
	}
	return waiters, !result.More, nil
}

func waiterOf(namespace string, described *wire.Waiter) (lock.Waiter, error) {
	waiter := lock.Waiter{
		Namespace: namespace, Scope: v1alpha1.ScopeGlobal, Function: described.Function, Key: described.Key, Place: described.Place, Priority: described.Priority,
		Holder: described.Holder, HolderRef: described.HolderRef.Reference(), Reason: described.Reason, Door: described.Door,
	}
	if described.Scope == wire.FunctionScope {
		waiter.Scope = v1alpha1.ScopeFunction
	}
	var err error
	if waiter.Since, err = time.Parse(time.RFC3339, described.Since); err == nil && described.Until != "" {
		waiter.Until, err = time.Parse(time.RFC3339, described.Until)
	}
	if err != nil {
		return lock.Waiter{}, &unansweredError{fmt.Errorf("the result has a time that cannot be read: %w", err)}
	}
	return waiter, nil
}

// operation describes a call in the words of all backends.
func (c *Client) operation(verb, namespace string, key v1alpha1.FullKey) string {
	if namespace = cmp.Or(namespace, c.options.namespace); namespace == "" {
		return fmt.Sprintf("%s %s", verb, key)
	}
	return fmt.Sprintf("%s %s in namespace %s", verb, key, namespace)
}

// failed is outcome, unless the caller's context ended.
func (c *Client) failed(ctx context.Context, operation string, key v1alpha1.FullKey, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return outcome(operation, key, err)
}

// canBeHeld reports whether there can be a lock with the key and the owner token. JSON
// cannot carry others unchanged.
func canBeHeld(key v1alpha1.FullKey, owner string) bool {
	return utf8.ValidString(string(key)) && v1alpha1.ValidateOwner(owner) == nil
}

// errLimitedProof refuses what the Forrst protocol has no argument for, and must not ignore.
var errLimitedProof = fmt.Errorf("the protocol can limit a proof by nothing but a fencing token: %w", errors.ErrUnsupported)

// isLimitedFurther reports whether the proof has limits that the protocol cannot name. Who the caller is
// limits nothing: the façade knows it.
func isLimitedFurther(proof lock.Proof) bool {
	return proof.IsUnrenewed || proof.Acquisition != "" || proof.ResourceVersion != ""
}

// isOfGrant reports whether a renewed lock may be of the grant that the proof is limited to. A façade
// that does not know the argument ignores it.
func isOfGrant(described *wire.Lock, proof lock.Proof) bool {
	return proof.FencingToken == 0 || described.FencingToken == nil || *described.FencingToken == proof.FencingToken
}

// mismatch is the answer to an owner token that cannot be.
func (c *Client) mismatch(ctx context.Context, operation, namespace string, key v1alpha1.FullKey) error {
	if _, err := c.get(ctx, operation, namespace, key); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", operation, lock.ErrOwnerMismatch)
}
