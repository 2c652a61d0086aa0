package forrst

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

const (
	// renewalsPerTTL are how many renewals fit into the ttl of a lock, so that some may
	// fail.
	renewalsPerTTL = 3
	// retriesPerTTL are how many attempts fit in after one has failed.
	retriesPerTTL = 10
	// minRenewalPause bounds what a lock costs whose ttl is hardly longer than it takes to
	// renew it.
	minRenewalPause = 20 * time.Millisecond
)

// keeper renews the lock of a function that runs elsewhere for as long as that may run.
type keeper struct {
	*Handler
	keptLock

	function string
	work     *work
	// renewAt is when to renew for the first time.
	renewAt time.Time
	// isStarted is the business of the call.
	isStarted bool
}

// begin prepares to keep a lock for a function that is over after timeout at the latest.
// Most functions are over before there is anything to do about the lock.
func (c *call) begin(timeout time.Duration) *keeper {
	now := c.config.Timers.Now()
	left := c.kept.granted.Spec.ExpireTime.Sub(c.config.Clock.Now())
	k := &keeper{Handler: c.Handler, keptLock: c.kept, function: c.request.Call.Function}
	k.work = &work{deadline: now.Add(timeout), expiry: now.Add(left), exchanged: make(chan struct{}), kept: make(chan struct{})}
	k.work.ctx, k.work.cancel = context.WithCancel(c.background.ctx)
	// Acquiring the lock may have taken a part of its ttl already.
	k.renewAt = now.Add(max(0, k.pause(renewalsPerTTL)-max(0, k.ttl-left)))
	return k
}

// start begins to renew. To do so again changes nothing.
func (k *keeper) start() {
	if !k.isStarted {
		k.isStarted = true
		k.background.run(k.run)
	}
}

// run keeps the lock until the function is over. Who is left then to do so releases it:
// the call or, if that has ended before, the keeper.
func (k *keeper) run() {
	defer close(k.work.kept)
	defer k.work.cancel()
	k.renewUntilOver()
	if k.background.ctx.Err() != nil {
		// The same has ended the exchange, which may know that the function never began.
		<-k.work.exchanged
	}
	isOver, isAbandoned := k.work.isFinished()
	if !isOver && k.work.lost == nil {
		k.leave()
	}
	if isOver && isAbandoned && k.work.lost == nil {
		// Why it failed is in the log.
		_ = k.releaseLock(context.WithoutCancel(k.work.ctx), k.function, k.namespace, k.key, k.proof())
	}
}

// renewUntilOver returns when the function is over, the lock is lost, or the server stops
// for good.
func (k *keeper) renewUntilOver() {
	pause := max(0, k.renewAt.Sub(k.config.Timers.Now()))
	timer := k.config.Timers.NewTimer(min(pause, k.left()))
	defer timer.Stop()
	for {
		select {
		case <-k.work.ctx.Done():
			return
		case <-timer.C():
		}
		if k.left() <= 0 {
			k.work.finish()
			return
		}
		pause = k.renew()
		if k.work.lost != nil {
			return
		}
		timer.Reset(min(pause, k.left()))
	}
}

// left is for how much longer the function may run. It is not less than zero.
func (k *keeper) left() time.Duration {
	return max(0, k.work.deadline.Sub(k.config.Timers.Now()))
}

func (k *keeper) pause(perTTL time.Duration) time.Duration {
	return max(k.ttl/perTTL, minRenewalPause)
}

// renew makes one attempt and returns when to make the next.
func (k *keeper) renew() time.Duration {
	ctx, cancel := context.WithTimeout(k.work.ctx, k.pause(renewalsPerTTL))
	defer cancel()
	sent := k.config.Timers.Now()
	renewed, err := k.config.Locks.Renew(ctx, k.namespace, k.key, k.proof(), 0)
	if err == nil && !isSameGrant(k.granted, renewed) {
		// A later grant under the same owner token, which was not this one's to renew.
		err = lock.ErrOwnerMismatch
	}
	switch {
	case err == nil:
		k.work.expiry = sent.Add(k.ttl)
		return k.pause(renewalsPerTTL)
	case isLost(err):
		k.work.lost = err
		k.config.Logger.Info("Lock was lost while its function is running elsewhere",
			"namespace", k.namespace, "lock", string(k.key), "function", k.function, "reason", err.Error())
	default:
		k.config.Logger.V(1).Info("Lock could not be renewed", "lock", string(k.key), "reason", err.Error())
	}
	return k.pause(retriesPerTTL)
}

// leave has the lock end by itself when the function is over whatever happens: nobody
// will be here to renew it until then, or to release it.
func (k *keeper) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.work.ctx), cleanupTimeout)
	defer cancel()
	ttl := min(k.left().Truncate(time.Millisecond)+time.Millisecond, k.config.Limits.MaxTTL)
	_, err := k.config.Locks.Renew(ctx, k.namespace, k.key, k.proof(), ttl)
	if err != nil {
		k.config.Logger.Error(err, "Failed to keep a lock for the rest of its function",
			"namespace", k.namespace, "lock", string(k.key), "function", k.function)
	}
}

func isSameGrant(granted, renewed *v1alpha1.Lock) bool {
	first, err := granted.FencingToken()
	if err != nil {
		return true // There is nothing to tell them apart by.
	}
	second, err := renewed.FencingToken()
	return err != nil || first == second
}
