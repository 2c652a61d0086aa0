package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// Audit records what users do to Locks directly. Admission comes before the write, which
// may yet fail in etcd or be refused by somebody else. So what was admitted is recorded
// when the informer shows it, by the replica that admitted it; what does not show within
// a minute did not happen. Refusals are recorded at once, dry runs never. Safe for
// concurrent use.
type Audit struct {
	sink    audit.Sink
	clock   clock.PassiveClock
	awaited *awaited
}

// NewAudit returns an audit that learns from the informer what has happened.
func NewAudit(sink audit.Sink, informer engine.Informer, now clock.PassiveClock) (*Audit, error) {
	awaited := newAwaited(sink, now)
	if _, err := informer.AddEventHandler(awaited); err != nil {
		return nil, fmt.Errorf("audit of admission: watch locks: %w", err)
	}
	return &Audit{sink: sink, clock: now, awaited: awaited}, nil
}

// of returns the handler with what it decides recorded. Without an audit, that is the
// handler.
func (a *Audit) of(handler admission.Handler) admission.Handler {
	if a == nil {
		return handler
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		response := handler.Handle(ctx, request)
		if request.DryRun != nil && *request.DryRun {
			return response
		}
		var err error
		if response.Allowed {
			err = a.admitted(request, response)
		} else {
			a.refused(request, response)
		}
		if err != nil {
			a.sink.Lost()
			logf.FromContext(ctx).Error(err, "Could not tell for the audit what was admitted",
				"namespace", request.Namespace, "lock", request.Name, "user", request.UserInfo.Username)
		}
		return response
	})
}

// admitted has what the request will do recorded once it is seen to be done.
func (a *Audit) admitted(request admission.Request, response admission.Response) error {
	var old v1alpha1.Lock
	if request.Operation != admissionv1.Create {
		if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
			return fmt.Errorf("decode the stored lock: %w", err)
		}
	}
	if request.Operation == admissionv1.Delete {
		a.awaited.end(a.ended(&old, request.UserInfo.Username))
		return nil
	}
	next, err := admittedLock(request, response)
	if err != nil {
		return err
	}
	switch {
	case request.Operation == admissionv1.Create:
		a.awaited.grant(next, audit.Granted, nil)
	case !next.Spec.AcquireTime.Equal(old.Spec.AcquireTime):
		a.succeeded(next, &old, request.UserInfo.Username)
	case !next.Spec.RenewTime.Equal(old.Spec.RenewTime):
		a.awaited.renewal(next, request.UserInfo.Username)
	}
	return nil
}

// succeeded has an update recorded that ends one grant and begins another.
func (a *Audit) succeeded(next, old *v1alpha1.Lock, user string) {
	at := next.Spec.AcquireTime.Time
	if rules.Expired(old, at) {
		ended := audit.Ended(audit.Expired, audit.Replaced, audit.Admission, user, old, at)
		a.awaited.grant(next, audit.TakenOver, &ended)
		return
	}
	ended := audit.Ended(audit.Released, audit.PassedOn, audit.Admission, user, old, at)
	a.awaited.grant(next, audit.HandedOn, &ended)
}

// ended returns the record of a delete by the user.
func (a *Audit) ended(old *v1alpha1.Lock, user string) audit.Record {
	event, reason, message := audit.ForceReleased, audit.ByForce, ""
	now := a.clock.Now()
	switch {
	case rules.Expired(old, now):
		event, reason = audit.Expired, audit.Reaped
	case user == old.Spec.Holder:
		event, reason = audit.Released, audit.ByOwner
	case user == namespaceCleaner, user == controllerManager && len(old.OwnerReferences) == 0:
		event, reason = audit.Released, audit.NamespaceDeleted
	case user == garbageCollector, user == controllerManager:
		event, reason = audit.Released, audit.OwnersGone
	default:
		message = audit.Bounded(old.Annotations[v1alpha1.ForceReleaseReasonAnnotation])
	}
	record := audit.Ended(event, reason, audit.Admission, user, old, now)
	record.Message = message
	return record
}

const (
	namespaceCleaner = "system:serviceaccount:kube-system:namespace-controller"
	garbageCollector = "system:serviceaccount:kube-system:generic-garbage-collector"
	// controllerManager is both where controllers have no accounts of their own.
	controllerManager = "system:kube-controller-manager"
)

// refused records a refusal. It tells of the lock that stands there, if the request does.
func (a *Audit) refused(request admission.Request, response admission.Response) {
	raw := request.OldObject.Raw
	if request.Operation == admissionv1.Create {
		raw = request.Object.Raw
	}
	var about v1alpha1.Lock
	if err := json.Unmarshal(raw, &about); err != nil {
		about = v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
	}
	if request.Operation == admissionv1.Create {
		about = wanted(&about)
	}
	about.Namespace = request.Namespace
	record := audit.Of(audit.Refused, audit.Admission, &about)
	record.Time = v1alpha1.NewTimestamp(a.clock.Now())
	record.Actor = request.UserInfo.Username
	record.Operation = strings.ToLower(string(request.Operation))
	record.Reason = audit.Failed
	if response.Result != nil {
		record.Reason = reasonOf(response.Result)
		record.Message = audit.Bounded(response.Result.Message)
	}
	a.sink.Record(record)
}

// wanted returns what a record tells of a lock that was not created: nothing but what
// it was to be of. What is not valid may be of any size.
func wanted(lock *v1alpha1.Lock) v1alpha1.Lock {
	spec := v1alpha1.LockSpec{
		Key:      audit.Bounded(lock.Spec.Key),
		Scope:    v1alpha1.Scope(audit.Bounded(string(lock.Spec.Scope))),
		Function: audit.Bounded(lock.Spec.Function),
	}
	name := audit.Bounded(lock.Name)
	if name == "" && v1alpha1.ValidateKey(spec.Key) == nil {
		name = spec.FullKey().ObjectName()
	}
	return v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// madeWay records that an expired lock was deleted so that another can be created.
func (a *Audit) madeWay(expired *v1alpha1.Lock) {
	if a != nil {
		a.sink.Record(audit.Ended(audit.Expired, audit.Reaped, audit.Admission, "", expired, a.clock.Now()))
	}
}

// reasonOf returns one of a bounded number of reasons.
func reasonOf(status *metav1.Status) audit.Reason {
	if apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: *status}, v1alpha1.CauseTypeHeld) {
		return audit.Conflict // Forbidden is for a missing right.
	}
	switch status.Reason {
	case metav1.StatusReasonAlreadyExists:
		return audit.Held
	case metav1.StatusReasonConflict:
		return audit.Conflict
	case metav1.StatusReasonInvalid:
		return audit.Invalid
	case metav1.StatusReasonForbidden:
		return audit.Forbidden
	default:
		return audit.Failed
	}
}

// admittedLock returns the object as it was admitted: what was submitted, with what the
// response stamps in its spec.
func admittedLock(request admission.Request, response admission.Response) (*v1alpha1.Lock, error) {
	var next v1alpha1.Lock
	if err := json.Unmarshal(request.Object.Raw, &next); err != nil {
		return nil, fmt.Errorf("decode the lock: %w", err)
	}
	stamps := map[string]any{}
	for _, operation := range response.Patches {
		switch name, isSpec := strings.CutPrefix(operation.Path, "/spec/"); {
		case isSpec && slices.Contains([]string{"owner", "holder", "acquireTime", "renewTime"}, name):
			stamps[name] = operation.Value
		case operation.Path == "/metadata/name":
			next.Name, _ = operation.Value.(string)
		}
	}
	text, err := json.Marshal(stamps)
	if err != nil {
		return nil, fmt.Errorf("encode the stamps: %w", err)
	}
	if err := json.Unmarshal(text, &next.Spec); err != nil {
		return nil, fmt.Errorf("decode the stamps: %w", err)
	}
	next.Namespace = request.Namespace
	return &next, nil
}
