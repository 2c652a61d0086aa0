package webhook

import (
	"context"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

// checkHolder looks for the object that a lock is to be held for, where the change names
// one: a lock that names none costs no request.
func (a *LockAdmission) checkHolder(ctx context.Context, namespace string, admitted, old *v1alpha1.Lock) error {
	if !rules.NamesHolder(admitted, old) {
		return nil
	}
	checker := holderref.Checker{Reader: a.LiveReader, Mapper: a.Client.RESTMapper()}
	return checker.Check(ctx, namespace, admitted.Spec.HolderRef)
}
