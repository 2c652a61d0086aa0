package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/usage"
	"forrst.dev/lock-operator/tracing"
	"forrst.dev/lock-operator/webhook/sender"
	"forrst.dev/lock-operator/webhook/traced"
)

// LockPath is where the webhook server serves [LockAdmission].
const LockPath = "/mutate-forrst-dev-v1alpha1-lock"

// LockAdmission admits the creation, change and deletion of Locks. Safe for concurrent use.
type LockAdmission struct {
	// Client reads from the cache, where it costs no request, and writes to the API
	// server.
	Client client.Client
	// LiveReader reads from the API server.
	LiveReader client.Reader
	// Limits bounds the granted ttl.
	Limits rules.Limits
	// MaxOperatorRenewal is what the annotation of a namespace may allow at most, see [rules.MaxOperatorRenewal]. Zero
	// admits no lock that the operator is to renew.
	MaxOperatorRenewal time.Duration
	// OperatorRenewals bounds the locks of a namespace that the operator renews, see [CountOperatorRenewals]. Nil
	// means no bound.
	OperatorRenewals *usage.Bound
	// ClockSkewAllowance is added to the expireTime of a lock before it may be taken over.
	ClockSkewAllowance time.Duration
	// Clock tells the time for the stamps of grants and the check of expiry. If it is a [servertime.Clock] that has heard no
	// answer for 20 s, a read through LiveReader comes first.
	Clock clock.PassiveClock
	// Audit records admitted and refused changes. Nil means no records.
	Audit *Audit
	// Authorizer says which users may force a release, when a user ends another holder's lock
	// before its expiry, and what they may update, when they acquire a lock with guards.
	// Required.
	Authorizer authorizer.Authorizer
	// IsGuarding says that the guards of locks are enforced; see package webhook/guard. If they
	// are not, no lock with guards is granted.
	IsGuarding bool
	// Bound bounds the locks of a namespace, as Client's cache shows them. Nil means no bound.
	Bound *usage.Bound
	// HolderKinds are the kinds of objects that locks may be held for.
	HolderKinds holderref.Kinds
	// Exemption admits the operator's own requests. Nil means that they are judged like all
	// others.
	Exemption *Exemption
	// Tracer makes the spans of reviews. Nil makes none.
	Tracer *tracing.Tracer

	foreignChanges *foreignChanges
}

// +kubebuilder:webhookconfiguration:mutating=true,name=lock-operator
// +kubebuilder:webhook:path=/mutate-forrst-dev-v1alpha1-lock,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,timeoutSeconds=5,groups=forrst.dev,resources=locks,verbs=create;update;delete,versions=v1alpha1,name=lock.forrst.dev,admissionReviewVersions=v1,serviceName=lock-operator-webhook,serviceNamespace=forrst-system

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;update;delete

// SetupWithManager registers the admission with the manager's webhook server.
func (a *LockAdmission) SetupWithManager(manager ctrl.Manager) {
	limited := *a
	limited.foreignChanges = newForeignChanges()
	limited.LiveReader, limited.Authorizer = sender.LimitReader(a.LiveReader), sender.LimitAuthorizer(a.Authorizer)
	manager.GetWebhookServer().Register(LockPath, traced.Webhook(a.Tracer, a.Exemption.of(LockPath, &limited)))
}

// decision is the outcome of the admission of one request about a Lock.
type decision struct {
	// old is the stored lock; nil for a create, or if it was not or could not be decoded.
	old *v1alpha1.Lock
	// next is the lock as it will be stored, or as it was submitted if it was refused; nil
	// for a delete, or if it was not or could not be decoded.
	next *v1alpha1.Lock
	// name is that of the lock that is refused because of err; empty for a collection.
	name     string
	err      error
	response admission.Response
}

// Handle implements [admission.Handler].
func (a *LockAdmission) Handle(ctx context.Context, request admission.Request) admission.Response {
	decision := a.decide(ctx, request)
	a.Audit.record(request, decision)
	response := decision.response
	if decision.err != nil && !sender.FromContext(ctx).IsVerified {
		response = refuse(request, decision.name, withoutHolder(decision.err))
	}
	if a.mustKeep(request, decision) {
		return keepingLock(response)
	}
	return response
}

// mustKeep reports whether a tool changes a lock that is held, or may do so.
func (a *LockAdmission) mustKeep(request admission.Request, decision decision) bool {
	switch {
	case request.Operation != admissionv1.Update:
		return false
	case decision.old == nil:
		return true
	case rules.Expired(decision.old, a.Clock.Now()):
		return false
	}
	return decision.next == nil || rules.Change{Old: decision.old, Updated: decision.next}.IsByTool()
}

func (a *LockAdmission) decide(ctx context.Context, request admission.Request) (d decision) {
	err := checkSizes(len(request.Object.Raw), len(request.OldObject.Raw))
	if err != nil {
		d.response = refuse(request, request.Name, err)
		return d
	}
	if request.Operation == admissionv1.Update || request.Operation == admissionv1.Delete {
		if d.old, err = decode(request.OldObject); err != nil {
			d.response = refuse(request, request.Name, fmt.Errorf("decode the stored lock: %w", err))
			return d
		}
	}
	if request.Operation == admissionv1.Create || request.Operation == admissionv1.Update {
		if d.next, err = decode(request.Object); err != nil {
			d.response = refuseUndecodable(request, err)
			return d
		}
	}
	var admitted *v1alpha1.Lock
	switch request.Operation {
	case admissionv1.Create:
		admitted, err = a.admitCreate(ctx, d.next, request)
	case admissionv1.Update:
		admitted, err = a.admitUpdate(ctx, d.old, d.next, request)
	case admissionv1.Delete:
		err = a.admitDelete(ctx, d.old, request)
	default:
		d.response = admission.Errored(http.StatusBadRequest, fmt.Errorf("operation %s is not registered for locks", request.Operation))
		return d
	}
	switch {
	case err != nil:
		d.name, d.err = cmp.Or(d.next, d.old).Name, err // The request for a collection has no name.
		logf.FromContext(ctx).V(1).Info("Refused a change to a Lock", "operation", request.Operation,
			"namespace", request.Namespace, "lock", d.name, "user", request.UserInfo.Username)
		d.response = refuse(request, d.name, err)
	case admitted == nil:
		d.response = admission.Allowed("")
	default:
		d.response = patch(d.next, admitted)
		d.next = admitted
	}
	return d
}

// maxDecodedBytes is more than any lock has that passed admission, by this version or an earlier one.
const maxDecodedBytes = 256 << 10

// checkSizes refuses objects for their size before they are decoded, which would cost many times as
// much. For changes, it knows only what no change may exceed; [rules.Change] has the rest.
func checkSizes(object, old int) error {
	switch {
	case old == 0:
		return rules.ValidateSize(object)
	case max(object, old) > maxDecodedBytes, object > max(old, rules.MaxBytes)+rules.MaxGrowth:
		return rules.ValidateSize(max(object, old))
	}
	return nil
}

func decode(object runtime.RawExtension) (*v1alpha1.Lock, error) {
	var lock v1alpha1.Lock
	if err := json.Unmarshal(object.Raw, &lock); err != nil {
		return nil, err
	}
	return &lock, nil
}

func (a *LockAdmission) admitCreate(ctx context.Context, submitted *v1alpha1.Lock, request admission.Request) (*v1alpha1.Lock, error) {
	candidate := submitted.DeepCopy()
	if candidate.Spec.Owner == "" {
		candidate.Spec.Owner = lock.NewOwner()
	}
	name := client.ObjectKey{Namespace: request.Namespace, Name: candidate.Spec.FullKey().ObjectName()}
	if err := a.freshenClock(ctx, name.Namespace, name.Name); err != nil {
		return nil, err
	}
	now := a.Clock.Now()
	limits, err := a.limitsFor(ctx, name, rules.AsksForOperatorRenewal(candidate, nil, now))
	if err != nil {
		return nil, err
	}
	admitted, holder, err := rules.AdmitCreate(candidate, requesterOf(request), limits, now)
	if err != nil {
		return nil, err
	}
	if err := a.checkRoom(ctx, request.Namespace, admitted.Name); err != nil {
		return nil, err
	}
	if err := a.checkGuards(ctx, request, rules.NewGuards(admitted, nil)); err != nil {
		return nil, err
	}
	if err := a.checkHolder(ctx, request.Namespace, holder); err != nil {
		return nil, err
	}
	return admitted, a.reclaim(ctx, client.ObjectKeyFromObject(admitted), now, isDryRun(request))
}

// checkRoom refuses a lock that is new to a namespace which has as many as it may have. It reads the
// cache only. The error is a [*rules.FullError].
func (a *LockAdmission) checkRoom(ctx context.Context, namespace, name string) error {
	if !a.Bound.IsFull(namespace) {
		return nil
	}
	// A name that is taken is judged by its lock; if that has expired, the new one takes its place.
	err := a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Lock{})
	if apierrors.IsNotFound(err) {
		return &rules.FullError{Namespace: namespace, Max: a.Bound.Max()}
	}
	return err
}

// changeOf returns what the request changes and who makes the change.
func changeOf(old, submitted *v1alpha1.Lock, request admission.Request) (change rules.Change, err error) {
	change = rules.Change{Old: old, Updated: submitted, User: requesterOf(request)}
	if change.IsUnchanged, err = rules.IsUnchanged(request.OldObject.Raw, request.Object.Raw); err != nil {
		return change, err
	}
	var options metav1.UpdateOptions
	if err := json.Unmarshal(request.Options.Raw, &options); err != nil && len(request.Options.Raw) > 0 {
		return change, fmt.Errorf("decode the options of the request: %w", err)
	}
	change.FieldManager = options.FieldManager
	if isDryRun(request) {
		change.IsTrial, err = rules.IsUnchangedExceptManagers(request.OldObject.Raw, request.Object.Raw)
	}
	return change, err
}

func (a *LockAdmission) admitUpdate(ctx context.Context, old, submitted *v1alpha1.Lock, request admission.Request) (*v1alpha1.Lock, error) {
	change, err := changeOf(old, submitted, request)
	if err != nil {
		return nil, err
	}
	if err := a.freshenClock(ctx, request.Namespace, request.Name); err != nil {
		return nil, err
	}
	now := a.Clock.Now()
	if err := change.ValidateSize(len(request.OldObject.Raw), len(request.Object.Raw), now); err != nil {
		return nil, err
	}
	limits, err := a.limitsFor(ctx, client.ObjectKeyFromObject(old), rules.AsksForOperatorRenewal(submitted, old, now))
	if err != nil {
		return nil, err
	}
	admitted, holder, err := rules.AdmitUpdate(change, limits, now, a.grace())
	if err != nil {
		return nil, err
	}
	if change.IsByTool() {
		if err := change.ValidateStored(admitted, request.Object.Raw); err != nil {
			return nil, err
		}
	}
	needsForce := change.NeedsForce(admitted, a.Clock.Now(), a.grace())
	if needsForce {
		if err := a.authorizeForce(ctx, request, old.Name, rules.HeldBy(old)); err != nil {
			return nil, err
		}
	}
	if err := a.checkGuards(ctx, request, rules.NewGuards(admitted, old)); err != nil {
		return nil, err
	}
	if err := a.checkHolder(ctx, request.Namespace, holder); err != nil {
		return nil, err
	}
	if !needsForce && change.IsForeign(admitted) && !isDryRun(request) {
		// Last, since a change that is refused disturbs no holder.
		return admitted, a.foreignChanges.take(old, a.Clock.Now())
	}
	return admitted, nil
}

// checkHolder checks that the object exists that a request newly names as the holder. A request
// that names none, with a nil holder, costs no request.
func (a *LockAdmission) checkHolder(ctx context.Context, namespace string, holder *rules.ValidReference) error {
	if holder == nil {
		return nil
	}
	checker := holderref.Checker{Reader: a.LiveReader, Mapper: a.Client.RESTMapper(), Kinds: a.HolderKinds}
	return checker.Check(ctx, namespace, *holder)
}

// requesterOf returns the user who has sent the request.
func requesterOf(request admission.Request) rules.User {
	return rules.User{Name: request.UserInfo.Username, UID: request.UserInfo.UID}
}

func isDryRun(request admission.Request) bool { return request.DryRun != nil && *request.DryRun }

// patch returns a response that changes only the stamped fields. The rest keeps the text of
// the manifest: GitOps tools must see no difference that they did not make.
func patch[T any](submitted, admitted *T) admission.Response {
	before, err := json.Marshal(submitted)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	after, err := json.Marshal(admitted)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}
