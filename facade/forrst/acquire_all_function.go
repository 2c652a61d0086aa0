package forrst

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/together"
)

func (c *call) prepareAcquireAll() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	var request lock.Request
	keys, isStrict := fields.Texts("keys"), fields.IsText("together", "strict")
	block := c.readRequest(&fields, &request)
	set, err := c.config.Locks.PrepareSet(&c.Caller, request, keys, isStrict)
	if err != nil {
		c.addInvalid(&problems, err, errorContext{kind: acquireFunction, pointer: argumentsPointer})
	}
	return func(ctx context.Context) (any, error) {
		for number, key := range set.FullKeys() {
			verbs := []string{access.VerbCreate, access.VerbPrioritize}
			if set.Priority() <= 0 {
				verbs = verbs[:1]
			}
			if number == 0 { // The call has begun with it.
				verbs = verbs[1:]
			}
			for _, verb := range verbs {
				if err := c.config.Access.Authorize(ctx, &c.Caller, verb, func() v1alpha1.FullKey { return key }); err != nil {
					c.about = key
					return nil, err
				}
			}
		}
		granted, err := set.Acquire(ctx, c.request.Call.Function)
		if err != nil {
			return nil, c.problemOfSet(ctx, block, err)
		}
		c.undo = func(ctx context.Context) { set.TakeBack(ctx, c.request.Call.Function, granted) }
		return c.acquiredAll(granted), nil
	}, problems
}

// acquiredAll describes locks that the caller has acquired together.
func (c *call) acquiredAll(granted []*v1alpha1.Lock) wire.AcquiredAll {
	all := wire.AcquiredAll{Acquired: true, Owner: granted[0].Spec.Owner}
	last, first := granted[0], granted[0]
	for _, each := range granted {
		all.Locks = append(all.Locks, wire.ListedLock{Key: each.Spec.Key, Lock: wireLock(each)})
		if number, err := each.FencingToken(); err == nil && number > all.FencingToken {
			all.FencingToken, last = number, each
		}
		if each.Spec.ExpireTime.Before(first.Spec.ExpireTime.Time) {
			first = each
		}
	}
	all.ExpiresAt = timestamp(first.Spec.ExpireTime)
	c.reportFencing(last)
	return all
}

// problemOfSet returns what the caller is told about an error.
func (c *call) problemOfSet(ctx context.Context, block *waitOption, err error) error {
	failed, ok := errors.AsType[*locks.LockError](err)
	if !ok {
		return err
	}
	c.about = failed.FullKey()
	if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
		problem := envelope.Error{Code: envelope.LockNotFound, Message: "Lock has ended before all others were acquired"}
		return envelope.Errors{problem.With(wire.KeyDetails{Key: failed.Key})}
	}
	about := errorContext{
		kind: acquireFunction, key: failed.Key, pointer: argumentsPointer, block: block,
		held: wire.HeldDetails{Key: failed.Key, Scope: wire.GlobalScope, FullKey: string(c.about)},
	}
	if failed.Scope == v1alpha1.ScopeFunction {
		about.held.Scope = wire.FunctionScope
	}
	if errors.Is(err, lock.ErrHeld) {
		about.held.Waiting = c.config.Locks.Waiting(ctx, &c.Caller, c.about, err)
	}
	return about.problem(err)
}

// firstAcquiredLock is the first of the locks that the arguments name, in the order of their full keys.
func (c *call) firstAcquiredLock() v1alpha1.FullKey {
	var ignored envelope.Errors
	fields := c.readArguments(&ignored)
	scope, function := readScopeAndFunction(&fields)
	ordered, _ := together.Order(rules.Acquisition{Scope: scope, Function: function}, fields.Texts("keys"))
	if len(ordered) == 0 {
		return ""
	}
	return ordered[0].FullKey()
}
