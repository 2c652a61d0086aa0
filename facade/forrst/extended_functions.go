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
	c.about = arguments.key
	claim := locks.OwnerClaim(arguments.owner).OfGrant(fields.PositiveInteger("fencing_token"))
	var ttl time.Duration
	if given := fields.Duration("ttl", unbounded); given != nil {
		ttl = given.Length
	}
	renewal, err := c.config.Locks.PrepareRenew(&c.Caller, arguments.key, claim, ttl)
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
	c.about = arguments.key
	claim := locks.OwnerClaim(arguments.owner).OfGrant(fields.PositiveInteger("fencing_token"))
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Release(ctx, &c.Caller, arguments.key, claim); err != nil {
			return nil, arguments.problem(extendedFunction, err)
		}
		return wire.Released{Released: true, Key: arguments.sent}, nil
	}, problems
}

func (c *call) prepareExtendedStatus() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, false)
	c.about = arguments.key
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.Get(ctx, &c.Caller, arguments.key)
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
	if len(request.Owner) > v1alpha1.MaxOwnerBytes {
		fields.Fail("owner", fmt.Sprintf("must be at most %d bytes", v1alpha1.MaxOwnerBytes))
	}
	request.Continue, _ = fields.Text("continue")
	limit := fields.PositiveInteger("limit")
	if limit > wire.MaxListed {
		fields.Fail("limit", fmt.Sprintf("must be at most %d", wire.MaxListed))
	} else if limit > 0 {
		request.Limit = int(limit)
	}
	isPaged := limit > 0 || request.Continue != ""
	return func(ctx context.Context) (any, error) {
		list, err := c.list(ctx, request, isPaged)
		if err != nil {
			return nil, (&errorContext{kind: extendedFunction, pointer: argumentsPointer}).problem(err)
		}
		encoded, err := envelope.Encode(list)
		if err != nil {
			return nil, err
		}
		// Until it is sent, which the caller can delay. The envelope is another copy.
		if err := c.Body.Take(2 * int64(len(encoded))); err != nil {
			return nil, err
		}
		return encoded, nil
	}, problems
}

// maxWholePages bounds a list that is not asked for in pages: to 2,000 locks, and 1 MiB of their texts.
const maxWholePages = 4

// list lists the locks of a page or, unless that is asked for, all of them: a caller that does not know of
// pages must not take a part for the whole.
func (c *call) list(ctx context.Context, request lock.PageRequest, isPaged bool) (wire.Locks, error) {
	list := wire.Locks{Locks: []wire.ListedLock{}}
	for read := range maxWholePages {
		if read > 0 {
			if err := c.Caller.Permit.Spend(ctx, c.function.cost); err != nil {
				return wire.Locks{}, err
			}
		}
		page, err := c.config.Locks.ListPage(ctx, &c.Caller, request)
		if err != nil {
			return wire.Locks{}, err
		}
		for i := range page.Locks {
			list.Locks = append(list.Locks, wire.ListedLock{Key: page.Locks[i].Spec.Key, Lock: wireLock(&page.Locks[i])})
		}
		if isPaged || page.Continue == "" {
			list.Continue = page.Continue
			return list, nil
		}
		request.Continue = page.Continue
	}
	problem := envelope.Error{Code: envelope.InvalidArguments, Message: fmt.Sprintf(
		"there are too many locks for one answer: send a limit of at most %d, and then the continue of each answer", wire.MaxListed)}
	return wire.Locks{}, envelope.Errors{problem.At(argumentsPointer + "/limit")}
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
