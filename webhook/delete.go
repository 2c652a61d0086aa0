package webhook

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/sender"
)

// admitDelete judges the object of the request without a live read, because exactly that
// object will be deleted: the API server passes what it has read to admission
// (rest.AdmissionToValidateObjectDeleteFunc), makes the delete conditional on that
// revision, and reads and asks again if the object has changed since (conditionalDelete in
// k8s.io/apiserver/pkg/storage/etcd3/store.go). If a holder has just lost the lock, its
// delete is therefore judged against the next holder's lock.
func (a *LockAdmission) admitDelete(ctx context.Context, old *v1alpha1.Lock, request admission.Request) error {
	if rules.MayEnd(old, requesterOf(request)) {
		return nil
	}
	if err := a.freshenClock(ctx, request.Namespace, old.Name); err != nil {
		return err
	}
	err := rules.Reclaim(old, a.Clock.Now(), a.grace())
	held, isHeld := errors.AsType[*rules.HeldError](err)
	if !isHeld {
		return err
	}
	if err := a.authorizeForce(ctx, request, old.Name, held); err != nil {
		return err
	}
	if !sender.FromContext(ctx).IsVerified {
		old = old.DeepCopy()
		old.Spec.Holder = "" // It is not told.
	}
	_, err = rules.ForceReason(old)
	return err
}
