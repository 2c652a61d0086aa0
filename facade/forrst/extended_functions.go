package forrst

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
)

func (c *call) prepareRenew() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, true)
	claim := locks.OwnerClaim(arguments.owner).OfGrant(fields.PositiveInteger("fencing_token"))
	var ttl time.Duration
	if given := fields.Duration("ttl", unbounded); given != nil {
		ttl = given.Length
	}
	renewal, err := c.config.Locks.PrepareRenew(&c.caller, arguments.key, claim, ttl)
	if err != nil {
		c.addInvalid(&problems, err, errorContext{kind: extendedFunction, pointer: argumentsPointer})
	}
	return func(ctx context.Context) (any, error) {
		renewed, err := renewal.Renew(ctx)
		if err != nil {
			return nil, arguments.problem(extendedFunction, err)
		}
		return wire.Renewed{Key: arguments.sent, Renewed: true, Lock: wireLock(renewed)}, nil
	}, problems
}

func (c *call) prepareExtendedRelease() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, true)
	claim := locks.OwnerClaim(arguments.owner).OfGrant(fields.PositiveInteger("fencing_token"))
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Release(ctx, &c.caller, arguments.key, claim); err != nil {
			return nil, arguments.problem(extendedFunction, err)
		}
		return wire.Released{Released: true, Key: arguments.sent}, nil
	}, problems
}

func (c *call) prepareExtendedStatus() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, false)
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.Get(ctx, &c.caller, arguments.key)
		state := wire.State{Key: arguments.sent, CheckedAt: envelope.FormatTimestamp(c.config.Clock.Now())}
		switch {
		case errors.Is(err, lock.ErrNotHeld):
			state.Expired = errors.Is(err, lock.ErrExpired)
			return state, nil
		case err != nil:
			return nil, err
		}
		state.Locked, state.Lock = true, new(wireLock(current))
		return state, nil
	}, problems
}

func (c *call) prepareList() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	request := lock.PageRequest{Limit: wire.MaxListed}
	request.Owner, _ = fields.Text("owner")
	request.Continue, _ = fields.Text("continue")
	if limit := fields.PositiveInteger("limit"); limit > wire.MaxListed {
		fields.Fail("limit", fmt.Sprintf("must be at most %d", wire.MaxListed))
	} else if limit > 0 {
		request.Limit = int(limit)
	}
	return func(ctx context.Context) (any, error) {
		page, err := c.config.Locks.ListPage(ctx, &c.caller, request)
		if err != nil {
			return nil, (&errorContext{kind: extendedFunction, pointer: argumentsPointer}).problem(err)
		}
		list := wire.Locks{Locks: make([]wire.ListedLock, 0, len(page.Locks)), Continue: page.Continue}
		for i := range page.Locks {
			list.Locks = append(list.Locks, wire.ListedLock{Key: page.Locks[i].Spec.Key, Lock: wireLock(&page.Locks[i])})
		}
		return list, nil
	}, problems
}

// wireLock describes a lock to a caller who knows, or is shown, the owner token.
func wireLock(current *v1alpha1.Lock) wire.Lock {
	spec := &current.Spec
	described := wire.Lock{
		FullKey:    string(spec.FullKey()),
		Owner:      spec.Owner,
		Scope:      wire.GlobalScope,
		Function:   spec.Function,
		Holder:     spec.Holder,
		Reason:     spec.Reason,
		HolderRef:  wire.NewHolderRef(spec.HolderRef),
		AcquiredAt: timestamp(spec.AcquireTime),
		RenewedAt:  timestamp(spec.RenewTime),
		ExpiresAt:  timestamp(spec.ExpireTime),
	}
	if spec.Scope == v1alpha1.ScopeFunction {
		described.Scope = wire.FunctionScope
	}
	if spec.TTL != nil {
		described.TTL = new(envelope.NewDuration(spec.TTL.Duration))
	}
	if spec.ReleaseDelay != nil {
		described.ReleaseDelay = new(envelope.NewDuration(spec.ReleaseDelay.Duration))
	}
	if token, err := current.FencingToken(); err == nil {
		described.FencingToken = &token
	}
	return described
}

func timestamp(at *v1alpha1.Timestamp) string {
	if at == nil {
		return envelope.FormatTimestamp(time.Time{})
	}
	return envelope.FormatTimestamp(at.Time)
}
