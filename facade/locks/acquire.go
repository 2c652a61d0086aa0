package locks

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

// Bind makes the lock end with the object that it is held for: the one that the caller
// names, or else the Pod that its token is bound to. That Pod is known to exist, since the
// token was authenticated, so it costs no request.
func (l *Locks) Bind(ctx context.Context, caller *access.Caller, request *lock.Request) error {
	podNamespace, pod := holderref.PodOf(caller.User)
	isPodHere := pod != nil && podNamespace == caller.Namespace
	switch named := request.HolderRef; {
	case named == nil && isPodHere:
		request.HolderRef = pod
	case named == nil, isPodHere && *named == *pod:
	case l.holders == nil:
		return &lock.InvalidError{Problems: field.ErrorList{
			field.Forbidden(rules.HolderRefPath, "objects are not looked for here; leave it out"),
		}}
	default:
		return l.holders.Check(ctx, caller.Namespace, named)
	}
	return nil
}

// Acquire takes a lock for a call, or waits for it as long as the permit allows. A caller
// that goes away meanwhile leaves no lock behind: it could never learn the owner token.
func (l *Locks) Acquire(ctx context.Context, caller *access.Caller, permit limits.Permit, function string, request lock.Request) (granted *v1alpha1.Lock, err error) {
	acquire := func(ctx context.Context) error {
		granted, err = l.backend.Acquire(ctx, caller.Namespace, request)
		return err
	}
	if request.Wait > 0 {
		err = permit.Wait(ctx, acquire)
	} else {
		err = acquire(ctx)
	}
	if err != nil || ctx.Err() == nil {
		return granted, err
	}
	// A failure is in the log.
	_ = l.ReleaseAfter(ctx, function, caller, granted.Spec.FullKey(), granted.Spec.Owner)
	return nil, ctx.Err()
}
