package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// LockPath is where the webhook server serves [LockAdmission].
const LockPath = "/mutate-forrst-dev-v1alpha1-lock"

// LockAdmission admits the creation, change and deletion of Locks. Safe for concurrent use.
type LockAdmission struct {
	// Client reads from the cache, where it costs no request, and writes to the API
	// server.
	Client client.Client
	// LiveReader reads what stands in etcd.
	LiveReader client.Reader
	// Limits bounds what is granted.
	Limits rules.Limits
	// ClockSkewAllowance is how long after its expireTime a lock is left alone.
	ClockSkewAllowance time.Duration
	// Clock tells the time that grants are stamped with and expiry is judged by. A
	// stale one, see [servertime.IsFresh], must be freshened by a read of LiveReader.
	Clock clock.PassiveClock
	// Audit records what is admitted and refused. Nil means that nothing is recorded.
	Audit *Audit
	// Authorizer tells who may force a release. It is asked about live locks of others
	// only. Required.
	Authorizer authorizer.Authorizer
}

// +kubebuilder:webhookconfiguration:mutating=true,name=lock-operator
// +kubebuilder:webhook:path=/mutate-forrst-dev-v1alpha1-lock,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,timeoutSeconds=5,groups=forrst.dev,resources=locks,verbs=create;update;delete,versions=v1alpha1,name=lock.forrst.dev,admissionReviewVersions=v1,serviceName=lock-operator-webhook,serviceNamespace=forrst-system

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;delete

// SetupWithManager registers the admission with the manager's webhook server.
func (a *LockAdmission) SetupWithManager(manager ctrl.Manager) {
	manager.GetWebhookServer().Register(LockPath, &admission.Webhook{Handler: a.Audit.of(a)})
}

// Handle implements [admission.Handler].
func (a *LockAdmission) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Operation == admissionv1.Delete {
		return a.handleDelete(ctx, request)
	}
	var submitted v1alpha1.Lock
	if err := json.Unmarshal(request.Object.Raw, &submitted); err != nil {
		return refuseUndecodable(request, err)
	}

	var admitted *v1alpha1.Lock
	var err error
	switch request.Operation {
	case admissionv1.Create:
		admitted, err = a.admitCreate(ctx, &submitted, request)
	case admissionv1.Update:
		admitted, err = a.admitUpdate(ctx, &submitted, request)
	default:
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("operation %s is not registered for locks", request.Operation))
	}
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Refused a change to a Lock", "operation", request.Operation,
			"namespace", request.Namespace, "lock", submitted.Name, "user", request.UserInfo.Username)
		return refuse(request, &submitted, err)
	}
	return patch(&submitted, admitted)
}

func (a *LockAdmission) admitCreate(ctx context.Context, submitted *v1alpha1.Lock, request admission.Request) (*v1alpha1.Lock, error) {
	if err := rules.ValidateSize(len(request.Object.Raw)); err != nil {
		return nil, err
	}
	candidate := submitted.DeepCopy()
	if candidate.Spec.Owner == "" {
		candidate.Spec.Owner = lock.NewOwner()
	}
	if err := a.freshenClock(ctx, request.Namespace, candidate.Spec.FullKey().ObjectName()); err != nil {
		return nil, err
	}
	admitted, err := rules.AdmitCreate(candidate, request.UserInfo.Username, a.Limits, a.Clock.Now())
	if err != nil {
		return nil, err
	}
	if err := a.checkHolder(ctx, request.Namespace, admitted, &v1alpha1.Lock{}); err != nil {
		return nil, err
	}
	return admitted, a.makeWay(ctx, client.ObjectKeyFromObject(admitted), isDryRun(request))
}

func (a *LockAdmission) admitUpdate(ctx context.Context, submitted *v1alpha1.Lock, request admission.Request) (*v1alpha1.Lock, error) {
	var old v1alpha1.Lock
	if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
		return nil, fmt.Errorf("decode the stored lock: %w", err)
	}
	isUnchanged, err := rules.IsUnchanged(request.OldObject.Raw, request.Object.Raw)
	if err != nil {
		return nil, err
	}
	if err := a.freshenClock(ctx, request.Namespace, request.Name); err != nil {
		return nil, err
	}
	change := rules.Change{Old: &old, Updated: submitted, IsUnchanged: isUnchanged, User: request.UserInfo.Username}
	if err := change.ValidateSize(len(request.OldObject.Raw), len(request.Object.Raw), a.Clock.Now()); err != nil {
		return nil, err
	}
	admitted, err := rules.AdmitUpdate(change, a.Limits, a.Clock.Now(), a.grace())
	if err != nil {
		return nil, err
	}
	if change.NeedsForce(admitted, a.Clock.Now(), a.grace()) {
		if err := a.authorizeForce(ctx, request, rules.HeldBy(&old)); err != nil {
			return nil, err
		}
	}
	return admitted, a.checkHolder(ctx, request.Namespace, admitted, &old)
}

func isDryRun(request admission.Request) bool { return request.DryRun != nil && *request.DryRun }

// patch changes only what was stamped, so that the rest keeps the very text of
// the manifest and GitOps tools see no difference that they did not make.
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
