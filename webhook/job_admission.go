package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/usage"
	"forrst.dev/lock-operator/tracing"
	"forrst.dev/lock-operator/webhook/sender"
	"forrst.dev/lock-operator/webhook/traced"
)

// JobPath is where the webhook server serves [JobAdmission].
const JobPath = "/mutate-batch-v1-job"

// JobAdmission admits the creation and change of Jobs that run under a lock: it suspends
// them on creation and leaves it to the operator to start them. It asks only for the right of a user who takes
// the finalizer from a Job that is being deleted. Safe for concurrent use.
type JobAdmission struct {
	// Limits bounds the ttl of their locks.
	Limits jobs.Limits
	// Clock tells the time at which a Job begins to wait.
	Clock clock.PassiveClock
	// Bound bounds the Jobs with the label in a namespace, see [CountJobs]. Nil means no bound.
	Bound *usage.Bound
	// Authorizer says which users may force the release of a Job's lock. Nil lets no one.
	Authorizer authorizer.Authorizer
	// Audit records refusals. Nil means no records.
	Audit *Audit
	// Exemption admits the operator's own requests. Nil means that they are judged like all
	// others.
	Exemption *Exemption
	// Tracer makes the spans of reviews. Nil makes none.
	Tracer *tracing.Tracer
}

// If another webhook changes the Job after this one, this one is called again: no other
// webhook can start the Job.
//
// +kubebuilder:webhook:path=/mutate-batch-v1-job,mutating=true,failurePolicy=fail,sideEffects=None,reinvocationPolicy=IfNeeded,timeoutSeconds=5,groups=batch,resources=jobs,verbs=create;update,versions=v1,name=job.forrst.dev,admissionReviewVersions=v1,serviceName=lock-operator-webhook,serviceNamespace=forrst-system

// SetupWithManager registers the admission with the manager's webhook server.
func (a *JobAdmission) SetupWithManager(manager ctrl.Manager) {
	limited := *a
	if a.Authorizer != nil {
		limited.Authorizer = sender.LimitAuthorizer(a.Authorizer)
	}
	manager.GetWebhookServer().Register(JobPath, traced.Webhook(a.Tracer, a.Exemption.of(JobPath, &limited)))
}

// Handle implements [admission.Handler].
func (a *JobAdmission) Handle(ctx context.Context, request admission.Request) admission.Response {
	var submitted batchv1.Job
	response := a.decide(ctx, request, &submitted)
	a.Audit.recordJob(request, &submitted, response)
	return response
}

// decide decodes the Job into submitted.
func (a *JobAdmission) decide(ctx context.Context, request admission.Request, submitted *batchv1.Job) admission.Response {
	if err := decodeJob(request.Object.Raw, submitted); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Job: %w", err))
	}
	if size := len(request.Object.Raw); jobs.IsLocked(submitted) && size > max(maxJob, len(request.OldObject.Raw)) {
		return denied(apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"a Job under a lock may have at most %d KiB, and this one has %d; move what is large into a ConfigMap", maxJob>>10, (size+1023)>>10)))
	}
	admitted := submitted.DeepCopy()
	var warnings []string
	var problems field.ErrorList
	switch request.Operation {
	case admissionv1.Create:
		warnings, problems = jobs.AdmitCreate(admitted, a.Limits, a.Clock.Now())
		if len(problems) == 0 && jobs.IsLocked(admitted) && a.Bound.IsFull(request.Namespace) {
			return denied(apierrors.NewForbidden(batchv1.Resource("jobs"), request.Name, fmt.Errorf(
				"namespace %s has as many Jobs with the label %s as it may have, %d; delete some that have ended, set ttlSecondsAfterFinished, or have --max-jobs-per-namespace of lock-operator raised",
				request.Namespace, v1alpha1.LockLabel, a.Bound.Max())))
		}
	case admissionv1.Update:
		var old batchv1.Job
		if err := decodeJob(request.OldObject.Raw, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the stored Job: %w", err))
		}
		isAbandoned := jobs.IsAbandoned(&old, admitted) && a.mayForce(ctx, request, &old)
		warnings, problems = jobs.AdmitUpdate(&old, admitted, a.Limits, a.Clock.Now(), isAbandoned)
	default:
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("operation %s is not registered for jobs", request.Operation))
	}
	if len(problems) > 0 {
		logf.FromContext(ctx).V(1).Info("Refused a change to a Job", "operation", request.Operation,
			"namespace", request.Namespace, "job", request.Name, "user", request.UserInfo.Username)
		return denied(newInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), request.Name, problems))
	}
	return patch(submitted, admitted).WithWarnings(warnings...)
}

// decodeJob decodes what the rules read of a Job. The specification of its pods may become hundreds of times as large as its text.
func decodeJob(text []byte, job *batchv1.Job) error {
	var read struct {
		metav1.ObjectMeta `json:"metadata"`

		Spec struct {
			batchv1.JobSpec

			Template struct {
				metav1.ObjectMeta `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
		Status struct {
			Conditions []batchv1.JobCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	job.ObjectMeta, job.Spec = read.ObjectMeta, read.Spec.JobSpec
	job.Spec.Template.ObjectMeta, job.Status.Conditions = read.Spec.Template.ObjectMeta, read.Status.Conditions
	return nil
}

// mayForce reports whether the user of the request may force the release of the Job's lock.
func (a *JobAdmission) mayForce(ctx context.Context, request admission.Request, job *batchv1.Job) bool {
	if a.Authorizer == nil {
		return false
	}
	terms, _ := jobs.ParseTerms(job.Annotations, a.Limits)
	isAllowed, err := isAllowed(ctx, a.Authorizer, request, forceReleaseOf(terms.FullKey().ObjectName()))
	if err != nil {
		logf.FromContext(ctx).Error(err, "Could not find out whether a user may take the finalizer from a Job",
			"namespace", request.Namespace, "job", request.Name, "user", request.UserInfo.Username)
	}
	return isAllowed
}
