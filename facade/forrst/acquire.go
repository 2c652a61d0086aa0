package forrst

import (
	"context"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// acquire takes a lock for the call, or waits for it. A caller that goes away meanwhile
// leaves no lock behind: it could never learn the owner token.
func (c *call) acquire(ctx context.Context, request lock.Request) (*v1alpha1.Lock, error) {
	if request.Wait > 0 {
		return c.await(ctx, request)
	}
	granted, err := c.config.Locks.Acquire(ctx, c.caller.Namespace, request)
	return c.keepUnlessGone(ctx, granted, err)
}

// await waits no longer than the server serves: whoever waits would keep it from
// stopping.
func (c *call) await(ctx context.Context, request lock.Request) (*v1alpha1.Lock, error) {
	if err := c.admission.beginWait(); err != nil {
		return nil, err
	}
	defer c.admission.endWait()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	forget := context.AfterFunc(drainOf(ctx), cancel)
	defer forget()
	granted, err := c.config.Locks.Acquire(waiting, c.caller.Namespace, request)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, &unavailableError
	}
	return c.keepUnlessGone(ctx, granted, err)
}

func (c *call) keepUnlessGone(ctx context.Context, granted *v1alpha1.Lock, err error) (*v1alpha1.Lock, error) {
	if err != nil || ctx.Err() == nil {
		return granted, err
	}
	c.release(ctx, granted.Spec.FullKey(), granted.Spec.Owner)
	return nil, ctx.Err()
}

// reportFencing tells the caller the number of the grant, by which a guarded resource
// can refuse holders whose lock has ended.
func (c *call) reportFencing(granted *v1alpha1.Lock) {
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
