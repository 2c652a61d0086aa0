package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

var (
	lockKind     = v1alpha1.GroupVersion.WithKind("Lock").GroupKind()
	lockResource = v1alpha1.Resource("locks")
)

// refuse returns a response that names the error, the field and the remedy.
func refuse(request admission.Request, name string, err error) admission.Response {
	var invalid *rules.InvalidError
	var held *rules.HeldError
	var forbidden *forbiddenError
	var full *rules.FullError
	switch {
	case errors.As(err, &invalid):
		return denied(newInvalid(lockKind, name, invalid.Problems))
	case errors.As(err, &forbidden):
		return denied(apierrors.NewForbidden(lockResource, name, err))
	case errors.As(err, &full):
		status := apierrors.NewForbidden(lockResource, name, err)
		status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseTypeNamespaceFull, Message: err.Error()}}
		return denied(status)
	case errors.As(err, &held) && request.Operation == admissionv1.Create:
		// The API server gives the same reason for a taken name.
		status := apierrors.NewAlreadyExists(lockResource, held.Key.ObjectName())
		status.ErrStatus.Message = heldText(held) + "; create it again when it is released or has expired"
		return denied(status)
	case errors.As(err, &held):
		return denied(heldStatus(name, held, requesterOf(request)))
	case errors.Is(err, rules.ErrExpired):
		return denied(apierrors.NewConflict(lockResource, name, fmt.Errorf("%w; acquire it again", err)))
	case errors.Is(err, rules.ErrStale):
		return denied(apierrors.NewConflict(lockResource, name, fmt.Errorf("%w; read it again and repeat the change", err)))
	case apierrors.IsTooManyRequests(err):
		return denied(tooManyRequests(err))
	default:
		return denied(apierrors.NewInternalError(err))
	}
}

// maxProblems of an object are told. The schema, which bounds the length of lists, is checked only
// after admission, and the text of n problems takes n² steps.
const maxProblems = 20

func newInvalid(kind schema.GroupKind, name string, problems field.ErrorList) *apierrors.StatusError {
	return apierrors.NewInvalid(kind, name, problems[:min(len(problems), maxProblems)])
}

// tooManyRequests keeps what the error says around that of a request, and when to try again.
func tooManyRequests(err error) *apierrors.StatusError {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return apierrors.NewTooManyRequests(err.Error(), seconds)
}

// withoutHolder returns the error as a sender may know it that the webhook's server has not verified:
// such a sender may have invented the user, the lock and the request. So the error names neither the
// holder nor a time, and does not tell a lock that is held from one that has just expired.
func withoutHolder(err error) error {
	held, isHeld := errors.AsType[*rules.HeldError](err)
	forbidden, isForbidden := errors.AsType[*forbiddenError](err)
	switch {
	case isHeld:
		return &rules.HeldError{Key: held.Key}
	case isForbidden && forbidden.held != nil:
		return &forbiddenError{held: &rules.HeldError{Key: forbidden.held.Key}, message: forbidden.message}
	default:
		return err
	}
}

// heldText says what is known of a held lock, and who may know more.
func heldText(held *rules.HeldError) string {
	if held.Holder != "" || held.IsExpired {
		return held.Error()
	}
	return fmt.Sprintf("%s; users who may read locks see by whom and until when with kubectl get lock %s", held, held.Key.ObjectName())
}

// heldStatus refuses a change of a lock that is held. It is no Conflict: repeating it does
// not help, whereas clients repeat conflicts, and kubectl advises to force them.
func heldStatus(name string, held *rules.HeldError, user rules.User) *apierrors.StatusError {
	status := apierrors.NewForbidden(lockResource, name, errors.New(heldText(held)+onHeld(held, user)))
	status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseTypeHeld, Message: held.Error()}}
	return status
}

// onHeld tells the user when the held lock can be changed.
func onHeld(held *rules.HeldError, user rules.User) string {
	switch {
	case held.Holder == "" || user.Name != held.Holder:
		return "; only its holder may change it until it is released or has expired"
	case held.IsBy(user):
		return ": it is yours under another owner token, which stays until the lock is released or has expired"
	default:
		return ": that is an earlier account of your name, with another UID; only that one may change it until it is released or has expired"
	}
}

// refuseUndecodable refuses an object that cannot be decoded as a Lock, and names the fields
// that may be malformed: the API server checks the schema only after admission.
func refuseUndecodable(request admission.Request, err error) admission.Response {
	var probe struct {
		Spec struct {
			TTL        any `json:"ttl"`
			ExpireTime any `json:"expireTime"`
		} `json:"spec"`
	}
	var problems field.ErrorList
	spec := field.NewPath("spec")
	if json.Unmarshal(request.Object.Raw, &probe) == nil {
		if text, ok := probe.Spec.TTL.(string); probe.Spec.TTL != nil && (!ok || !isDuration(text)) {
			problems = append(problems, field.Invalid(spec.Child("ttl"), probe.Spec.TTL,
				fmt.Sprintf("must be a duration with units of at least 1ms and at most %s, such as 30s, 5m or 1h30m", v1alpha1.MaxTTL)))
		}
		if text, ok := probe.Spec.ExpireTime.(string); probe.Spec.ExpireTime != nil && (!ok || !isTime(text)) {
			problems = append(problems, field.Invalid(spec.Child("expireTime"), probe.Spec.ExpireTime,
				"must be an RFC 3339 time such as 2026-12-24T00:00:00Z"))
		}
	}
	if len(problems) == 0 {
		path, reason := spec, err.Error()
		if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
			path, reason = field.NewPath(mismatch.Field), fmt.Sprintf("must be a %s, not a %s", mismatch.Type.Kind(), mismatch.Value)
		}
		problems = append(problems, field.Invalid(path, field.OmitValueType{}, reason))
	}
	return denied(newInvalid(lockKind, request.Name, problems))
}

func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil
}

func isTime(text string) bool {
	var timestamp v1alpha1.Timestamp
	quoted, err := json.Marshal(text)
	return err == nil && timestamp.UnmarshalJSON(quoted) == nil
}

// keepingLock returns the response with another status than 422 if it has that: "kubectl apply --force"
// and the like options of Flux and Argo CD take 422 for a change of a field that cannot change, delete
// the object, which its holder may do, and create it again.
func keepingLock(response admission.Response) admission.Response {
	if response.Result != nil && response.Result.Code == http.StatusUnprocessableEntity {
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	return response
}

func denied(err *apierrors.StatusError) admission.Response {
	status := err.Status()
	status.Status = metav1.StatusFailure
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}
