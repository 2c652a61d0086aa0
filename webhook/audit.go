package webhook

import (
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

// Audit records what users do to Locks directly, when admission lets it pass or refuses it. Whether the API
// server stores what passed is decided afterwards, so its records say that it was admitted. Dry runs are not
// recorded, but for those of forced releases. Safe for concurrent use.
type Audit struct {
	sink  audit.Sink
	clock clock.PassiveClock
}

// NewAudit returns an audit that gives its records to the sink, which is required.
func NewAudit(sink audit.Sink, now clock.PassiveClock) *Audit {
	return &Audit{sink: sink, clock: now}
}

// record records what was decided about a request. A nil Audit records nothing.
func (a *Audit) record(request admission.Request, d decision) {
	switch {
	case a == nil:
	case d.response.Allowed:
		a.admitted(admittedRecords(request, d, a.clock.Now()))
	case !isDryRun(request):
		a.refused(request, d)
	}
}

// admitted records what admission let pass. A review may be forged, and its texts of any size.
func (a *Audit) admitted(records []audit.Record) {
	for _, record := range records {
		record.Admitted = true
		record.Bound()
		a.sink.Record(record)
	}
}

// admittedRecords returns the records of a change that passed: two of one that ends one grant and begins another.
func admittedRecords(request admission.Request, d decision, now time.Time) []audit.Record {
	user := request.UserInfo.Username
	switch {
	case request.Operation == admissionv1.Delete:
		return deletionRecords(request, d.old, now)
	case isDryRun(request):
		return nil
	case request.Operation == admissionv1.Create:
		granted := begun(audit.Granted, d.next)
		granted.UID = "" // The API server gives it later.
		return []audit.Record{granted}
	case !d.next.Spec.AcquireTime.Equal(d.old.Spec.AcquireTime):
		return successionRecords(d.old, d.next, user)
	case !d.next.Spec.RenewTime.Equal(d.old.Spec.RenewTime):
		return []audit.Record{audit.Prolonged(audit.Admission, user, d.old, d.next)}
	}
	return nil
}

// successionRecords returns the records of the end of one grant and of the beginning of the next.
func successionRecords(old, next *v1alpha1.Lock, user string) []audit.Record {
	event, reason, beginning := audit.Released, audit.PassedOn, audit.HandedOn
	at := next.Spec.AcquireTime.Time
	if rules.Expired(old, at) {
		event, reason, beginning = audit.Expired, audit.Replaced, audit.TakenOver
	}
	return []audit.Record{audit.Ended(event, reason, audit.Admission, user, old, at), begun(beginning, next)}
}

// begun returns the record of a grant without its fencing token, which the write has yet to make.
func begun(event audit.Event, next *v1alpha1.Lock) audit.Record {
	record := audit.Begun(event, audit.Admission, next)
	record.FencingToken = 0
	return record
}

// deletionRecords returns the record of a delete. A Lock with finalizers ends in two steps: the delete marks it, and
// it goes when its last finalizer is removed. The record is that of the mark. A delete that ends nothing, since the Lock
// is marked or in a dry run, has one only if it is by force.
func deletionRecords(request admission.Request, old *v1alpha1.Lock, now time.Time) []audit.Record {
	record := ended(old, requesterOf(request), now)
	endsNothing := isDryRun(request) || !old.DeletionTimestamp.IsZero()
	if endsNothing && record.Event != audit.ForceReleased {
		return nil
	}
	if isDryRun(request) {
		record.DryRun, record.HeldSeconds = true, nil
	}
	return []audit.Record{record}
}

// ended returns the record of a delete by the user.
func ended(old *v1alpha1.Lock, who rules.User, now time.Time) audit.Record {
	event, reason, message, user := audit.ForceReleased, audit.ByForce, "", who.Name
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
// that was only reported happens nevertheless, and is recorded in either case.
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
		a.unread(request)
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

// unread records a deletion by Kubernetes of which no more is known than its request.
func (a *Audit) unread(request admission.Request) {
	if isDryRun(request) {
		return
	}
	record := audit.Of(audit.Released, audit.Admission, &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}})
	record.Time, record.Actor = v1alpha1.NewTimestamp(a.clock.Now()), request.UserInfo.Username
	a.admitted([]audit.Record{record})
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
