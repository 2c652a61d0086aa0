package forrst

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// keptLock is a lock that ends with the function inside it.
type keptLock struct {
	namespace string
	key       v1alpha1.FullKey
	// sent is the key as sent.
	sent    string
	granted *v1alpha1.Lock
	ttl     time.Duration
}

// proof is what it takes to renew and to release the lock.
func (k *keptLock) proof() lock.Proof {
	return lock.Proof{Owner: k.granted.Spec.Owner, Holder: k.granted.Spec.Holder}
}

// endLock ends the lock of a call that is over. While the function may still be running
// elsewhere, that is left to the keeper.
func (c *call) endLock(ctx context.Context, key v1alpha1.FullKey, owner string) {
	if c.keeper == nil {
		c.release(ctx, key, owner)
		return
	}
	work := c.keeper.work
	if work.abandon() {
		c.keeper.start()
		return
	}
	if c.keeper.isStarted {
		<-work.kept
	}
	lost := work.lost
	if lost == nil {
		lost = c.releaseLock(ctx, c.request.Call.Function, c.kept.namespace, key, c.kept.proof())
	}
	if reason := work.lossIn(lost, c.config.Timers.Now()); reason != "" {
		c.response.Extensions = append(c.response.Extensions, envelope.ResponseExtension{
			URN:  wire.LostURN,
			Data: envelope.MustEncode(wire.Lost{Key: c.kept.sent, Reason: reason}),
		})
	}
}
