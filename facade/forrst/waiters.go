package forrst

import (
	"context"
	"fmt"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

func (c *call) prepareWaiters() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	key := readOptionalKey(&fields)
	limit := fields.PositiveInteger("limit")
	if limit > wire.MaxWaiters {
		fields.Fail("limit", fmt.Sprintf("must be at most %d", wire.MaxWaiters))
	} else if limit == 0 {
		limit = wire.MaxWaiters
	}
	c.about = key
	return func(ctx context.Context) (any, error) {
		waiting, more, err := c.config.Locks.Waiters(ctx, &c.Caller, key, int(limit))
		if err != nil {
			return nil, err
		}
		list := wire.Waiters{Waiters: make([]wire.Waiter, 0, len(waiting)), More: more}
		for index := range waiting {
			list.Waiters = append(list.Waiters, wireWaiter(&waiting[index]))
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

// lockOfWaiters is the lock that the arguments name, or "" if they name none.
func (c *call) lockOfWaiters() v1alpha1.FullKey {
	var ignored envelope.Errors
	fields := c.readArguments(&ignored)
	return readOptionalKey(&fields)
}

// readOptionalKey reads a full key, which is empty if it is not given.
func readOptionalKey(fields *envelope.Fields) v1alpha1.FullKey {
	if sent, _ := fields.Text("key"); sent != "" {
		return parseFullKey(sent)
	}
	return ""
}

func wireWaiter(waiter *lock.Waiter) wire.Waiter {
	described := wire.Waiter{
		Key: waiter.Key, FullKey: string(waiter.FullKey()), Scope: wire.GlobalScope, Function: waiter.Function, Place: waiter.Place, Priority: waiter.Priority,
		Holder: waiter.Holder, Reason: waiter.Reason, HolderRef: wire.NewHolderRef(waiter.HolderRef), Door: waiter.Door,
		Since: envelope.FormatTimestamp(waiter.Since),
	}
	if waiter.Scope == v1alpha1.ScopeFunction {
		described.Scope = wire.FunctionScope
	}
	if !waiter.Until.IsZero() {
		described.Until = envelope.FormatTimestamp(waiter.Until)
	}
	return described
}
