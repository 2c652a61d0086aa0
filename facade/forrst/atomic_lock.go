package forrst

import (
	"context"
	"errors"
	"fmt"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

const expiredMessage = "ttl must be longer than it takes to acquire the lock, which expired meanwhile"

// grantedLock is the data of the extension when the lock was acquired (section 12.6).
// It has exactly these members.
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

// atomicLock is the extension that holds a lock around a function (section 12).
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
// no lock (section 12.12).
func (c *call) isDryRun() bool {
	position := c.position(envelope.DryRun)
	if position < 0 || !c.function.isRouted {
		return false
	}
	var ignored envelope.Errors
	fields := c.readOptions(position, &ignored)
	// Anything that the function might not take for a dry run is not one here.
	return fields.Bool("enabled", false)
}

// invokeLocked runs the function inside the lock. The lock is released on every way
// out, panics included, unless the caller wants to keep it. A function that was not
// started leaves no lock, whatever the caller wants (section 12.7).
func (c *call) invokeLocked(ctx context.Context, position int, options lockOptions, invoke Invocation) (any, error) {
	request := c.acquisition(options)
	if !options.autoRelease {
		// One that ends with the function stays for it, even if the caller is gone.
		if err := c.bind(ctx, &request); err != nil {
			return nil, err
		}
	}
	granted, err := c.acquire(ctx, request)
	if err != nil {
		if !errors.Is(err, lock.ErrExpired) && !errors.Is(err, lock.ErrInvalid) {
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
			c.release(ctx, request.FullKey(), granted.Spec.Owner)
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
	if !keep && c.function.isRouted {
		c.endingLock = c.routedLock(granted, options.ttl.Length)
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

func (c *call) acquireProblem(err error, position int, options lockOptions) error {
	switch {
	case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrTimeout):
		problem := heldProblem(wire.HeldDetails{
			Key: options.key, Scope: options.scope, FullKey: c.fullKeyAsSent(options),
		}, options.block)
		return &problem
	case errors.Is(err, lock.ErrExpired):
		problem := envelope.Error{Code: envelope.InvalidArguments, Message: expiredMessage}.
			At(extensionPointer(position) + "/options/ttl/value")
		return &problem
	case errors.Is(err, lock.ErrInvalid):
		problem := envelope.Error{Code: envelope.InvalidArguments, Message: err.Error()}.
			At(extensionPointer(position) + "/options")
		return &problem
	}
	return err
}

// heldProblem says that the lock was not to be had: at once, or, if the caller gave a
// time to wait, within that, be it zero.
func heldProblem(details wire.HeldDetails, block *waitOption) envelope.Error {
	problem := envelope.Error{Code: envelope.LockAcquisitionFailed, Message: "Unable to acquire lock"}
	if block != nil {
		problem.Code = envelope.LockTimeout
		problem.Message = fmt.Sprintf("Lock acquisition timed out after %s %ss", block.Value, block.Unit)
		details.Waited = block.sent
	}
	return problem.With(details)
}

// release ends the lock of a call that is over.
func (c *call) release(ctx context.Context, key v1alpha1.FullKey, owner string) {
	// Why it failed is in the log.
	_ = c.releaseLock(ctx, c.request.Call.Function, c.caller.Namespace, key, c.proof(owner))
}

// releaseLock ends the lock of a function that is over. It goes on when the caller has
// gone, and its failure does not change the response, which is why it is logged here: the
// function has done its work, and the lock ends with its ttl.
func (h *Handler) releaseLock(ctx context.Context, function, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	ctx = context.WithoutCancel(ctx)
	err := h.config.Locks.Release(ctx, namespace, key, proof)
	if err == nil {
		return nil
	}
	log := h.config.Logger.WithValues("namespace", namespace, "lock", string(key), "function", function)
	if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
		log.Info("Lock ended before the function that ran inside it", "reason", err.Error())
	} else {
		log.Error(err, "Failed to release a lock after its function")
	}
	return err
}
