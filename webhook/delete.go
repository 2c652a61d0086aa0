package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

func (a *LockAdmission) handleDelete(ctx context.Context, request admission.Request) admission.Response {
	var old v1alpha1.Lock
	if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
		return refuse(request, &old, fmt.Errorf("decode the stored lock: %w", err))
	}
	// In the delete of a collection the request has no name.
	request.Name = old.Name
	if err := a.admitDelete(ctx, &old, request); err != nil {
		logf.FromContext(ctx).V(1).Info("Refused to delete a Lock",
			"namespace", request.Namespace, "lock", old.Name, "user", request.UserInfo.Username)
		return refuse(request, &old, err)
	}
	return admission.Allowed("")
}

// admitDelete judges the object that the request shows, without reading it live. That is
// the very one that will be deleted: the API server asks admission about what it has read
// (rest.AdmissionToValidateObjectDeleteFunc), makes the delete conditional on the revision
// of that, and reads and asks again if it has changed meanwhile (conditionalDelete in
// k8s.io/apiserver/pkg/storage/etcd3/store.go). So the delete of a holder who has just lost
// the lock is judged as one of the next holder's.
func (a *LockAdmission) admitDelete(ctx context.Context, old *v1alpha1.Lock, request admission.Request) error {
	if rules.MayEnd(old, request.UserInfo.Username) {
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
	if err := a.authorizeForce(ctx, request, held); err != nil {
		return err
	}
	_, err = rules.ForceReason(old)
	return err
}
