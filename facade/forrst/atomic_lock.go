package forrst

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// grantedLock is the data of the extension when the lock was acquired (docs/forrst.md,
// section 12.6). It has exactly these members.
type grantedLock struct {
	Key       string `json:"key"`
	Acquired  bool   `json:"acquired"`
	Owner     string `json:"owner"`
	Scope     string `json:"scope"`
	ExpiresAt string `json:"expires_at"`
}

// refusedLock is the data of the extension when the lock was not acquired. It does not
// tell about the holder.
type refusedLock struct {
	Key      string `json:"key"`
	Acquired bool   `json:"acquired"`
}

// atomicLock is the extension that holds a lock around a function (docs/forrst.md,
// section 12).
func (c *call) atomicLock(position int) (wrapper, envelope.Errors) {
	options, problems := c.readLockOptions(position)
	if len(problems) > 0 || c.isDryRun() {
		return nil, problems
	}
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) {
			return c.invokeLocked(ctx, position, options, invoke)
		}
	}, nil
}

// isDryRun reports whether a routed function is only asked what it would do, which needs
// no lock (docs/forrst.md, section 12.12).
func (c *call) isDryRun() bool {
	position := c.position(envelope.DryRun)
	if position < 0 || !c.function.isRouted || c.function.needsLock {
		return false
	}
	var ignored envelope.Errors
	fields := c.readOptions(position, &ignored)
	// Anything that the function might not take for a dry run is not one here.
	return fields.Bool("enabled", false)
}

// invokeLocked runs the function inside the lock. The lock is released on every way out,
// panics included, unless the caller wants to keep it. A function that was not started
// leaves no lock, whatever the caller wants (docs/forrst.md, section 12.7).
func (c *call) invokeLocked(ctx context.Context, position int, options lockOptions, invoke Invocation) (any, error) {
	granted, err := options.Acquire(ctx, c.request.Call.Function)
	if err != nil {
		c.about = options.FullKey()
		if !errors.Is(err, lock.ErrInvalid) {
			// Whose options are at fault gets no entry.
			c.report(position, refusedLock{Key: options.key})
		}
		return nil, c.acquireProblem(err, position, options)
	}
	keep := false
	defer func() {
		switch {
		case keep:
		case c.endingLock != nil:
			c.endRoutedLock(ctx, options.key)
		default:
			c.release(ctx, granted.Spec.FullKey(), granted.Spec.Owner)
		}
	}()
	entries := len(c.response.Extensions)
	c.report(position, grantedLock{
		Key:       options.key,
		Acquired:  true,
		Owner:     granted.Spec.Owner,
		Scope:     options.scope,
		ExpiresAt: envelope.FormatTimestamp(granted.Spec.ExpireTime.Time),
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
		c.report(position, refusedLock{Key: options.key})
	}
	return result, err
}

// reportFencing tells the caller the number of the grant, by which a guarded resource
// can refuse holders whose lock has ended.
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
	c.response.Extensions = append(c.response.Extensions, envelope.ResponseExtension{
		URN:  wire.FencingURN,
		Data: envelope.MustEncode(wire.Fencing{Token: token}),
	})
}

func (c *call) acquireProblem(err error, position int, options lockOptions) error {
	about := errorContext{
		kind: lockExtension, key: options.key, pointer: extensionPointer(position) + "/options", block: options.block,
		held: wire.HeldDetails{Key: options.key, Scope: options.scope, FullKey: c.fullKeyAsSent(options)},
	}
	return about.problem(err)
}

// release ends the lock of a call that is over.
func (c *call) release(ctx context.Context, key v1alpha1.FullKey, owner string) {
	// A failure is in the log.
	_ = c.config.Locks.ReleaseAfter(ctx, c.request.Call.Function, &c.Caller, key, owner)
}
