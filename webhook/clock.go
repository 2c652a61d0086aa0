package webhook

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// freshenClock reads a lock, which need not exist, if the clock is stale: an
// admission request does not tell the API server's time, the response to a read
// does. It serves all requests for some seconds; see [servertime.FreshFor].
func (a *LockAdmission) freshenClock(ctx context.Context, namespace, name string) error {
	if servertime.IsFresh(a.Clock) {
		return nil
	}
	err := a.LiveReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Lock{})
	return ignoreNotFound("read a lock to learn the time", err)
}

// grace returns how long after its expireTime a lock is left alone at present: the
// allowance is for the clock that has stamped it, the rest for that of this replica.
func (a *LockAdmission) grace() time.Duration {
	return a.ClockSkewAllowance + servertime.MaxAhead(a.Clock)
}
