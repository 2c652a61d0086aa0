package webhook

import (
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

// Audit records what users do to Locks directly. A change that was admitted may still fail
// in etcd or be refused by another webhook. The replica that admitted it therefore records
// it when the informer shows it. A change that does not show within a minute counts as not
// made. Refusals are recorded at once, and so are admitted forced releases, until they show. Dry runs are
// not recorded, but for those of forced releases. Safe for concurrent use.
type Audit struct {
	sink    audit.Sink
	clock   clock.PassiveClock
	awaited *awaited
}

// Informer is the part of a shared informer on Locks that [Audit] uses.
type Informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}

// NewAudit returns an audit that learns from the informer which admitted changes happened.
func NewAudit(sink audit.Sink, informer Informer, now clock.PassiveClock) (*Audit, error) {
	awaited := newAwaited(sink, now)
	if _, err := informer.AddEventHandler(awaited); err != nil {
		return nil, fmt.Errorf("audit of admission: watch locks: %w", err)
	}
	return &Audit{sink: sink, clock: now, awaited: awaited}, nil
}

// record records a refusal now, and an admitted change when the informer shows it. A nil
// Audit records nothing.
func (a *Audit) record(request admission.Request, d decision) {
	if a == nil {
		return
	}
	user := request.UserInfo.Username
	switch {
	case d.response.Allowed && request.Operation == admissionv1.Delete:
		a.deleted(d.old, request)
	case isDryRun(request):
	case !d.response.Allowed:
		a.refused(request, d)
	case request.Operation == admissionv1.Create:
		a.awaited.grant(d.next, audit.Granted, nil)
	case !d.next.Spec.AcquireTime.Equal(d.old.Spec.AcquireTime):
		a.succeeded(d.next, d.old, user)
	case !d.next.Spec.RenewTime.Equal(d.old.Spec.RenewTime):
		a.awaited.renewal(d.next, user)
	}
}

// succeeded awaits an update that ends one grant and begins another.
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

// deleted awaits an admitted delete. A forced release is on record from now on.
func (a *Audit) deleted(old *v1alpha1.Lock, request admission.Request) {
	ended := a.ended(old, requesterOf(request))
	if ended.Event == audit.ForceReleased {
		admitted := ended
		admitted.Event, admitted.HeldSeconds = audit.ForceReleaseAdmitted, nil
		admitted.DryRun, admitted.Unconfirmed = isDryRun(request), !isDryRun(request)
		a.sink.Record(admitted)
	}
	if !isDryRun(request) {
		a.awaited.end(ended)
	}
}

// unseenRelease returns the record of a forced release that was admitted, and has not been seen to happen.
func unseenRelease(ended *audit.Record, now time.Time) audit.Record {
	unseen := *ended
	unseen.Event, unseen.HeldSeconds, unseen.Time = audit.ForceReleaseUnseen, nil, v1alpha1.NewTimestamp(now)
	return unseen
}

// ended returns the record of a delete by the user.
func (a *Audit) ended(old *v1alpha1.Lock, who rules.User) audit.Record {
	event, reason, message, user := audit.ForceReleased, audit.ByForce, "", who.Name
	now := a.clock.Now()
	switch {
	case rules.Expired(old, now):
		event, reason = audit.Expired, audit.Reaped
	case who.Holds(old):
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
	// controllerManager stands for both on clusters whose controllers share one account.
	controllerManager = "system:kube-controller-manager"
)

// refused records a refusal, with the lock that the change was about.
func (a *Audit) refused(request admission.Request, d decision) {
	about := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
	switch {
	case d.old != nil:
		about = d.old
	case d.next != nil:
		about = bounded(d.next)
	}
	about.Namespace = request.Namespace
	a.sink.Record(a.refusal(request, about, d.response))
}

// recordJob records that a Job was refused. A nil Audit records nothing.
func (a *Audit) recordJob(request admission.Request, submitted *batchv1.Job, response admission.Response) {
	if a == nil || response.Allowed || isDryRun(request) {
		return
	}
	about := &v1alpha1.Lock{}
	if terms, _ := jobs.ParseTerms(submitted.Annotations, jobs.Limits{}); terms.Key != "" {
		about = bounded(&v1alpha1.Lock{Spec: v1alpha1.LockSpec{Key: terms.Key, Scope: terms.Scope, Function: terms.Function}})
	}
	about.Namespace = request.Namespace
	record := a.refusal(request, about, response)
	record.Object = &audit.Object{Group: batchv1.GroupName, Resource: "jobs", Name: audit.Bounded(request.Name)}
	a.sink.Record(record)
}

func (a *Audit) refusal(request admission.Request, about *v1alpha1.Lock, response admission.Response) audit.Record {
	record := audit.Of(audit.Refused, audit.Admission, about)
	record.Time = v1alpha1.NewTimestamp(a.clock.Now())
	record.Actor = request.UserInfo.Username
	record.Operation = strings.ToLower(string(request.Operation))
	record.Reason = audit.Failed
	if response.Result != nil {
		record.Reason = reasonOf(response.Result)
		record.Message = audit.Bounded(response.Result.Message)
	}
	return record
}

// Unjudged records a review that the webhook's server has refused, with what is known of it: which lock
// an object of another kind concerns is not. One that its client has abandoned is no refusal. A deletion
// that was only reported happens nevertheless, and is counted in either case.
func (a *Audit) Unjudged(review server.Refused) {
	if review.IsAbandoned && review.Path != DeletionAuditPath {
		return // The API server has given the change up, or its user has.
	}
	request := admission.Request{AdmissionRequest: *review.Request}
	request.Name, request.Namespace = audit.Bounded(request.Name), audit.Bounded(request.Namespace)
	request.UserInfo.Username, request.Operation = audit.Bounded(request.UserInfo.Username), admissionv1.Operation(audit.Bounded(string(request.Operation)))
	response := admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &review.Status}}
	switch review.Path {
	case LockPath:
		a.record(request, decision{response: response})
	case JobPath:
		a.recordJob(request, &batchv1.Job{}, response)
	case guard.Path:
		a.guarded(request, response)
	case DeletionAuditPath:
		a.lost(request)
	}
}

// guarded records that a change of an object was refused before it was known whether a lock guards it.
func (a *Audit) guarded(request admission.Request, response admission.Response) {
	if isDryRun(request) {
		return
	}
	record := a.refusal(request, &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace}}, response)
	record.Event, record.Reason = audit.WriteRefused, audit.Failed
	record.Object = &audit.Object{Name: request.Name}
	a.sink.Record(record)
}

// lost counts a deletion of which no more is known than its request.
func (a *Audit) lost(request admission.Request) {
	if isDryRun(request) {
		return
	}
	a.sink.Lost(audit.Record{
		Event: audit.Released, Via: audit.Admission, Actor: request.UserInfo.Username,
		Namespace: request.Namespace, Lock: request.Name, Time: v1alpha1.NewTimestamp(a.clock.Now()),
	})
}

// bounded returns the recorded parts of a lock that was not created. Before validation, they
// may have any size.
func bounded(lock *v1alpha1.Lock) *v1alpha1.Lock {
	spec := v1alpha1.LockSpec{
		Key:      audit.Bounded(lock.Spec.Key),
		Scope:    v1alpha1.Scope(audit.Bounded(string(lock.Spec.Scope))),
		Function: audit.Bounded(lock.Spec.Function),
	}
	name := audit.Bounded(lock.Name)
	if name == "" && v1alpha1.ValidateStoredKey(spec.Key) == nil {
		name = spec.FullKey().ObjectName()
	}
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// reclaimed records that an expired lock was deleted to create another in its place.
func (a *Audit) reclaimed(expired *v1alpha1.Lock) {
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
	case metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge:
		return audit.Invalid
	case metav1.StatusReasonForbidden:
		return audit.Forbidden
	default:
		return audit.Failed
	}
}
