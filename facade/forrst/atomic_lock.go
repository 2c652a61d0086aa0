package forrst

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// lockOptions are the options of the atomic lock extension (docs/forrst.md, section 12.2).
type lockOptions struct {
	key         string      // as sent
	block       *waitOption // how long to wait, nil if the caller would not wait at all
	autoRelease bool
	locks.Acquisition
}

// readLockOptions checks the options of the extension at position. Unknown options are ignored.
func (c *call) readLockOptions(position int) lockOptions {
	fields := c.readOptions(position, &c.faults)
	var options lockOptions
	options.key, _ = fields.RequiredText("key")
	request := lock.Request{Acquisition: rules.Acquisition{Scope: v1alpha1.ScopeGlobal, Key: options.key}}
	request.TTL = fields.RequiredDuration("ttl", unbounded).Span()
	if readScope(&fields, v1alpha1.ScopeFunction) == v1alpha1.ScopeFunction {
		request.Scope, request.Function = v1alpha1.ScopeFunction, c.request.Call.Function
	}
	options.block = c.readBlock(&fields, &request)
	request.Owner, _ = fields.Text("owner")
	options.autoRelease = fields.Bool("auto_release", true)
	var err error
	options.Acquisition, err = c.config.Locks.Prepare(&c.Caller, request, !options.autoRelease)
	c.addInvalid(lockExtension, optionsPointer(position), err)
	return options
}

// lockOfOptions is the lock that the options of the extension name.
func (c *call) lockOfOptions(position int) v1alpha1.FullKey {
	fields := c.readOptions(position, new(envelope.Errors))
	key, _ := fields.RequiredText("key")
	if readScope(&fields, v1alpha1.ScopeFunction) == v1alpha1.ScopeFunction {
		return v1alpha1.NewFullKey(v1alpha1.ScopeFunction, c.request.Call.Function, key)
	}
	return v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key)
}

// lockEntry is the data of the extension (docs/forrst.md, section 12.6). Of a lock that was not acquired it has the first
// two members, and nothing about the holder.
type lockEntry struct {
	Key       string `json:"key"`
	Acquired  bool   `json:"acquired"`
	Owner     string `json:"owner,omitempty"`
	Scope     string `json:"scope,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

// atomicLock is the extension that holds a lock around a function (docs/forrst.md, section 12).
func (c *call) atomicLock(position int) wrapper {
	options := c.readLockOptions(position)
	if c.isDryRun() {
		return nil
	}
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) { return c.invokeLocked(ctx, position, options, invoke) }
	}
}

// isDryRun reports whether a routed function is only asked what it would do, which needs no lock (docs/forrst.md, section
// 12.12).
func (c *call) isDryRun() bool {
	position := c.position(envelope.DryRun)
	if position < 0 || !c.function.isRouted || c.function.needsLock {
		return false
	}
	fields := c.readOptions(position, new(envelope.Errors))
	// Anything that the function might not take for a dry run is not one here.
	return fields.Bool("enabled", false)
}

// invokeLocked runs the function inside the lock. The lock is released on every way out, panics included, unless the caller
// wants to keep it. A function that was not started leaves no lock, whatever the caller wants (docs/forrst.md, section 12.7).
func (c *call) invokeLocked(ctx context.Context, position int, options lockOptions, invoke Invocation) (any, error) {
	granted, err := options.Acquire(ctx, c.request.Call.Function)
	if err != nil {
		c.about = options.FullKey()
		if !errors.Is(err, lock.ErrInvalid) {
			// Whose options are at fault gets no entry.
			c.report(position, lockEntry{Key: options.key})
		}
		fullKey := "lock:" + options.key // In the caller's own spelling.
		if options.Scope() == v1alpha1.ScopeFunction {
			fullKey = "lock:" + c.request.Call.Function + ":" + options.key
		}
		about := errorContext{
			kind: lockExtension, key: options.key, pointer: optionsPointer(position), block: options.block,
			held: wire.HeldDetails{Key: options.key, Scope: wire.ScopeOf(options.Scope()), FullKey: fullKey},
		}
		return nil, about.problem(err)
	}
	keep := false
	defer func() {
		switch {
		case keep:
		case c.endingLock != nil:
			c.endRoutedLock(ctx, options.key)
		default: // A failure is in the log.
			_ = c.config.Locks.ReleaseAfter(ctx, c.request.Call.Function, &c.Caller, granted.Spec.FullKey(), granted.Spec.Owner)
		}
	}()
	entries := len(c.response.Extensions)
	c.report(position, lockEntry{
		Key: options.key, Acquired: true, Owner: granted.Spec.Owner, Scope: wire.ScopeOf(options.Scope()), ExpiresAt: timestamp(granted.Spec.ExpireTime),
	})
	c.reportFencing(granted)
	keep = !options.autoRelease
	if c.function.isRouted {
		c.fullKey = granted.Spec.FullKey()
		if !keep {
			c.endingLock = c.routedLock(granted, options.TTL())
		}
	}
	result, err := invoke(ctx)
	if keep && c.isUnstarted {
		keep = false
		// Its caller would take the entries for a lock to release.
		c.response.Extensions = c.response.Extensions[:entries]
		c.report(position, lockEntry{Key: options.key})
	}
	return result, err
}

// reportFencing tells the caller the number of the grant, by which a guarded resource can refuse holders whose lock has
// ended.
func (c *call) reportFencing(granted *v1alpha1.Lock) {
	if c.Trace != nil {
		c.about = granted.Spec.FullKey()
	}
	token, err := granted.FencingToken()
	if err != nil {
		c.config.Logger.Error(err, "A lock was granted without a fencing token", "lock", string(granted.Spec.FullKey()))
		return
	}
	c.fencing = token
	c.reportAs(wire.FencingURN, wire.Fencing{Token: token})
}
