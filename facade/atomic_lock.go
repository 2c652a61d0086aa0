package facade

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock"
)

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

// refusedLockDetails are the details of LOCK_ACQUISITION_FAILED (section 12.9).
type refusedLockDetails struct {
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	FullKey string `json:"full_key"`
}

// atomicLock is the extension that holds a lock around a function (section 12).
func (c *call) atomicLock(position int) (wrapper, forrst.Errors) {
	options, problems := c.readLockOptions(position)
	if len(problems) > 0 {
		return nil, problems
	}
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) {
			return c.invokeLocked(ctx, position, options, invoke)
		}
	}, nil
}

// invokeLocked runs the function inside the lock. The lock is released on every way
// out, panics included, unless the caller wants to keep it.
func (c *call) invokeLocked(ctx context.Context, position int, options lockOptions, invoke Invocation) (any, error) {
	request := c.acquisition(options)
	granted, err := c.config.Locks.Acquire(ctx, c.config.Namespace, request)
	if err != nil {
		c.report(position, refusedLock{Key: options.key})
		return nil, c.acquireProblem(err, position, options)
	}
	keep := false
	defer func() {
		if !keep {
			c.release(ctx, request.FullKey(), granted.Spec.Owner)
		}
	}()
	if err := ctx.Err(); err != nil {
		// The caller went away before it could learn the owner token, and the function
		// is not going to start: nobody could ever use this lock.
		return nil, err
	}
	c.report(position, grantedLock{
		Key:       options.key,
		Acquired:  true,
		Owner:     granted.Spec.Owner,
		Scope:     options.scope,
		ExpiresAt: forrst.FormatTimestamp(granted.Spec.ExpireTime.Time),
	})
	keep = !options.autoRelease
	return invoke(ctx)
}

func (c *call) acquireProblem(err error, position int, options lockOptions) error {
	switch {
	case errors.Is(err, lock.ErrHeld):
		problem := forrst.Error{Code: forrst.LockAcquisitionFailed, Message: "Unable to acquire lock"}.
			With(refusedLockDetails{Key: options.key, Scope: options.scope, FullKey: c.fullKeyAsSent(options)})
		return &problem
	case errors.Is(err, lock.ErrExpired):
		problem := forrst.Error{Code: forrst.InvalidArguments, Message: "ttl must be longer than it takes to acquire the lock, which expired meanwhile"}.
			At(extensionPointer(position) + "/options/ttl/value")
		return &problem
	case errors.Is(err, lock.ErrInvalid):
		problem := forrst.Error{Code: forrst.InvalidArguments, Message: err.Error()}.
			At(extensionPointer(position) + "/options")
		return &problem
	}
	return err
}

// release ends the lock of a call that is over. It goes on when the caller has gone,
// and its failure does not change the response: the function has done its work, and
// the lock ends with its ttl.
func (c *call) release(ctx context.Context, key v1alpha1.FullKey, owner string) {
	ctx = context.WithoutCancel(ctx)
	err := c.config.Locks.Release(ctx, c.config.Namespace, key, owner)
	if err == nil {
		return
	}
	log := c.config.Logger.WithValues("namespace", c.config.Namespace, "lock", string(key), "function", c.request.Call.Function)
	switch {
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrOwnerMismatch):
		log.Info("Lock ended before the function that ran inside it", "reason", err.Error())
	default:
		log.Error(err, "Failed to release a lock after its function")
	}
}
