package guard

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/sender"
)

// refuse returns a response that says which lock guards the object, who holds it, and what the user
// can do. A guard is no Conflict: clients repeat a conflict, which does not help here.
//
// A sender that the webhook's server has not verified may have invented user and object: it learns that
// a lock guards the object, but neither which, nor by whom it is held, until when and why.
func refuse(ctx context.Context, request admission.Request, v *verdict) admission.Response {
	isVerified := sender.FromContext(ctx).IsVerified
	guarded, isGuarded := errors.AsType[*rules.GuardedError](v.err)
	switch {
	case isGuarded:
	case apierrors.IsTooManyRequests(v.err):
		seconds, _ := apierrors.SuggestsClientDelay(v.err)
		return denied(apierrors.NewTooManyRequests("whether a lock guards the object could not be found out; try again", seconds).Status())
	default:
		logf.FromContext(ctx).Error(v.err, "Could not find out whether a lock guards an object",
			"namespace", request.Namespace, "resource", v.target.Resource, "object", v.target.Name, "user", request.UserInfo.Username)
		cause := v.err
		if !isVerified {
			cause = errors.New("try again")
		}
		return denied(apierrors.NewInternalError(fmt.Errorf("whether a lock guards the object could not be found out: %w", cause)).Status())
	}
	logf.FromContext(ctx).V(1).Info("Refused a change of a guarded object", "operation", request.Operation, "namespace", request.Namespace,
		"resource", v.target.Resource, "object", v.target.Name, "lock", guarded.Lock.Name, "user", request.UserInfo.Username)
	reason := guarded.Error()
	if !isVerified {
		reason = "it is guarded by a lock, which users who may read locks find with kubectl get locks -o yaml, by spec.guards"
	}
	status := apierrors.NewForbidden(v.target.Resource, v.target.Name, fmt.Errorf("%s; %s", reason, remedy(guarded.Lock))).Status()
	status.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseTypeGuarded, Message: reason}}
	return denied(status)
}

func remedy(lock *v1alpha1.Lock) string {
	return fmt.Sprintf("ask its holder to release it, wait until then, or ask a user who has the verb force-release on %s in namespace %q to end it",
		v1alpha1.Resource("locks"), lock.Namespace)
}

func denied(status metav1.Status) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}
