package webhook

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// freshenClock reads a lock, which need not exist, if the clock has heard no answer for a while: the machine may have been
// paused, and unlike the answer to a write of its own, an admission request would not show it. A webhook makes few requests,
// and one read serves all reviews of [servertime.FreshFor].
func (a *LockAdmission) freshenClock(ctx context.Context, namespace, name string) error {
	if servertime.HasHeard(a.Clock, servertime.FreshFor) {
		return nil
	}
	err := a.LiveReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Lock{})
	return ignoreNotFound("read a lock to learn the time", err)
}

// grace returns the time to add to the expireTime of a lock before it may be taken over:
// the allowance is for the clock that stamped it, the rest for the clock of this replica.
func (a *LockAdmission) grace() time.Duration {
	return a.ClockSkewAllowance + servertime.MaxAhead(a.Clock)
}
