package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// kueueLabel marks the Jobs that Kueue suspends and starts.
const kueueLabel = "kueue.x-k8s.io/queue-name"

// fixedAnnotations may not change: the Job waits for, or holds, its lock on these terms.
var fixedAnnotations = []string{
	v1alpha1.LockKeyAnnotation, v1alpha1.LockScopeAnnotation, v1alpha1.LockFunctionAnnotation,
	v1alpha1.LockTTLAnnotation, v1alpha1.LockPolicyAnnotation,
}

// annotationPrefix begins the names of the annotations for Jobs under a lock.
const annotationPrefix = v1alpha1.LockLabel + "-"

var (
	// userAnnotations are set by users.
	userAnnotations = append(slices.Clone(fixedAnnotations),
		v1alpha1.LockWaitTimeoutAnnotation, v1alpha1.LockPriorityAnnotation, v1alpha1.LockPausedAnnotation)
	// operatorAnnotations are set by the operator. A Job that is created from the manifest of
	// another Job may contain them.
	operatorAnnotations = []string{v1alpha1.LockQueuedTimeAnnotation, v1alpha1.LockWaitingAnnotation, v1alpha1.LockStoppingAnnotation}
)

// AdmitCreate suspends a Job that is to run under a lock, or reports why it cannot. Repeating it
// changes nothing. The warnings tell the user that the Job waits for no lock.
func AdmitCreate(job *batchv1.Job, limits Limits, now time.Time) (warnings []string, problems field.ErrorList) {
	problems = checkLabel(job)
	if !IsLocked(job) {
		return nil, problems
	}
	_, malformed := parseTerms(job.Annotations, limits, v1alpha1.ValidateKey)
	problems = append(problems, malformed...)
	problems = append(problems, checkNames(nil, job.Annotations)...)
	problems = append(problems, foreignManagers(job)...)
	problems = append(problems, checkRoom(job)...)
	problems = append(problems, checkKept(job)...)
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		problems = append(problems, field.Forbidden(field.NewPath("spec", "manualSelector"),
			"a Job under a lock needs the generated selector, which finds its pods even after the Job was deleted"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if IsSuspended(job) && !isReinvoked(job, now) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.LockPausedAnnotation, "true")
		warnings = append(warnings, "the Job is paused by its spec.suspend and does not wait for its lock; set spec.suspend to false to have it wait, "+
			"and leave spec.suspend out of the manifest: the operator suspends the Job until it holds the lock")
	}
	if !hasFinalizer(job) {
		job.Finalizers = append(job.Finalizers, v1alpha1.LockFinalizer)
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.LockQueuedTimeAnnotation, FormatTime(now))
	delete(job.Annotations, v1alpha1.LockWaitingAnnotation)
	delete(job.Annotations, v1alpha1.LockStoppingAnnotation)
	delete(job.Spec.Template.Annotations, v1alpha1.FencingTokenAnnotation)
	job.Spec.Suspend = new(true)
	return warnings, nil
}

// reinvokedWithin is longer than the API server works on one request.
const reinvokedWithin = time.Minute

// isReinvoked reports whether admission has seen the new Job before, in the same request. Only the
// time distinguishes it from a Job that is restored from a backup: another webhook may have taken the finalizer meanwhile.
func isReinvoked(job *batchv1.Job, now time.Time) bool {
	queued, err := time.Parse(time.RFC3339Nano, job.Annotations[v1alpha1.LockQueuedTimeAnnotation])
	return err == nil && now.Sub(queued).Abs() < reinvokedWithin
}

// IsAbandoned reports whether the change takes the operator's finalizer from a Job that is being deleted and has not ended. That
// gives up the lock while pods may run, as a forced release does, and is for users who may force one.
func IsAbandoned(old, updated *batchv1.Job) bool {
	return IsLocked(old) && !IsDecided(old) && old.DeletionTimestamp != nil && hasFinalizer(old) && !hasFinalizer(updated)
}

// AdmitUpdate reverts changes in updated to fields that only the operator may change, and reports
// changes that are not allowed. The warnings tell the user about the reverted changes. With isAbandoned, see [IsAbandoned],
// the finalizer is not put back.
func AdmitUpdate(old, updated *batchv1.Job, limits Limits, now time.Time, isAbandoned bool) (warnings []string, problems field.ErrorList) {
	problems = checkLabel(updated)
	if IsLocked(old) != IsLocked(updated) && len(problems) == 0 {
		problems = append(problems, field.Invalid(labelPath(v1alpha1.LockLabel), updated.Labels[v1alpha1.LockLabel],
			"is immutable: a Job runs under a lock from its creation on or not at all; create another Job"))
	}
	if !IsLocked(old) {
		return nil, problems
	}
	problems = append(problems, checkAnnotations(old, updated, limits)...)
	problems = append(problems, checkNames(old.Annotations, updated.Annotations)...)
	if len(checkRoom(old)) == 0 {
		problems = append(problems, checkRoom(updated)...)
	}
	if len(checkKept(old)) == 0 {
		problems = append(problems, checkKept(updated)...)
	}
	if updated.Labels[kueueLabel] != old.Labels[kueueLabel] {
		problems = append(problems, foreignManagers(updated)...)
	}
	if len(problems) > 0 || IsDecided(old) {
		return nil, problems
	}
	if hasFinalizer(old) && !hasFinalizer(updated) && !isAbandoned {
		updated.Finalizers = append(updated.Finalizers, v1alpha1.LockFinalizer)
		warnings = append(warnings, "the finalizer "+v1alpha1.LockFinalizer+" stays until the last pod of the Job has ended; the operator removes it, "+
			"and from a Job that is being deleted also a user who has the verb force-release on its lock")
	}
	if !hasFinalizer(old) && hasFinalizer(updated) {
		updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(name string) bool { return name == v1alpha1.LockFinalizer })
		warnings = append(warnings, "the finalizer "+v1alpha1.LockFinalizer+" is set by the operator only")
	}
	keepToken(old, updated)
	return append(warnings, admitSuspend(old, updated, now)...), nil
}

func labelPath(name string) *field.Path { return field.NewPath("metadata", "labels").Key(name) }

// checkLabel refuses a label value that is neither "true" nor "false": the user may have meant a
// Job under a lock.
func checkLabel(job *batchv1.Job) field.ErrorList {
	value, ok := job.Labels[v1alpha1.LockLabel]
	if !ok || value == "true" || value == "false" {
		return nil
	}
	return field.ErrorList{field.NotSupported(labelPath(v1alpha1.LockLabel), value, []string{"true", "false"})}
}

// foreignManagers reports other managers that would suspend, start or run the Job.
func foreignManagers(job *batchv1.Job) field.ErrorList {
	var problems field.ErrorList
	if _, ok := job.Labels[kueueLabel]; ok {
		problems = append(problems, field.Forbidden(labelPath(kueueLabel),
			"Kueue suspends and starts the Jobs of its queues itself, and would start this one without its lock; remove this label or "+v1alpha1.LockLabel))
	}
	if manager := job.Spec.ManagedBy; manager != nil && *manager != batchv1.JobControllerName {
		problems = append(problems, field.Forbidden(field.NewPath("spec", "managedBy"),
			"a Job under a lock must be run by the Job controller of Kubernetes, whose status tells when its last pod has ended"))
	}
	return problems
}

func checkAnnotations(old, updated *batchv1.Job, limits Limits) field.ErrorList {
	var problems field.ErrorList
	for _, name := range fixedAnnotations {
		before, wasSet := old.Annotations[name]
		after, isSet := updated.Annotations[name]
		if before != after || wasSet != isSet {
			problems = append(problems, field.Invalid(annotationPath(name), after, "is immutable; create another Job"))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	_, before := ParseTerms(old.Annotations, limits)
	_, after := ParseTerms(updated.Annotations, limits)
	// Ignore old problems: the limits may have been lowered since the Job was created.
	return slices.DeleteFunc(after, func(problem *field.Error) bool {
		return slices.ContainsFunc(before, func(known *field.Error) bool { return known.Error() == problem.Error() })
	})
}

// checkNames refuses new annotations with unknown names: they are probably misspelt, and would be
// ignored.
func checkNames(old, updated map[string]string) field.ErrorList {
	var problems field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(updated)) {
		if _, wasThere := old[name]; wasThere || !strings.HasPrefix(name, annotationPrefix) ||
			slices.Contains(userAnnotations, name) || slices.Contains(operatorAnnotations, name) {
			continue
		}
		problems = append(problems, field.NotSupported(annotationPath(name), name, userAnnotations))
	}
	return problems
}

// maxTokenDigits is the length of the longest fencing token.
const maxTokenDigits = 19

// checkRoom refuses a pod template whose annotations leave no room for the fencing token.
func checkRoom(job *batchv1.Job) field.ErrorList {
	annotations := map[string]string{v1alpha1.FencingTokenAnnotation: strings.Repeat("9", maxTokenDigits)}
	for name, value := range job.Spec.Template.Annotations {
		if name != v1alpha1.FencingTokenAnnotation {
			annotations[name] = value
		}
	}
	if err := validation.ValidateAnnotationsSize(annotations); err != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "template", "metadata", "annotations"),
			fmt.Sprintf("leave %d of %d bytes to the annotation %s, which is added when the Job is started",
				len(v1alpha1.FencingTokenAnnotation)+maxTokenDigits, validation.TotalAnnotationSizeLimitB, v1alpha1.FencingTokenAnnotation))}
	}
	return nil
}

func hasFinalizer(job *batchv1.Job) bool {
	return slices.Contains(job.Finalizers, v1alpha1.LockFinalizer)
}

// keepToken restores the fencing token that the operator set in the pod template.
func keepToken(old, updated *batchv1.Job) {
	token, ok := old.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation]
	switch {
	case !ok:
		delete(updated.Spec.Template.Annotations, v1alpha1.FencingTokenAnnotation)
	case updated.Spec.Template.Annotations == nil:
		updated.Spec.Template.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: token}
	default:
		updated.Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation] = token
	}
}

// admitSuspend keeps the Job suspended until the operator starts it, and records that a user
// suspended it.
func admitSuspend(old, updated *batchv1.Job, now time.Time) (warnings []string) {
	switch {
	case IsSuspended(old) && !IsSuspended(updated):
		updated.Spec.Suspend = new(true)
		delete(updated.Annotations, v1alpha1.LockPausedAnnotation)
		warnings = []string{"the Job stays suspended until it holds its lock; the operator starts it then"}
	case !IsSuspended(old) && IsSuspended(updated):
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.LockPausedAnnotation, "true")
	}
	keepAnnotation(old, updated, v1alpha1.LockQueuedTimeAnnotation)
	if isPaused(old) && !isPaused(updated) {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.LockQueuedTimeAnnotation, FormatTime(now))
	}
	keepAnnotation(old, updated, v1alpha1.LockStoppingAnnotation)
	keepAnnotation(old, updated, v1alpha1.LockWaitingAnnotation)
	if isPaused(updated) {
		delete(updated.Annotations, v1alpha1.LockWaitingAnnotation)
	}
	return warnings
}

// keepAnnotation restores an annotation that the operator sets.
func keepAnnotation(old, updated *batchv1.Job, name string) {
	if value, ok := old.Annotations[name]; ok {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, name, value)
	} else {
		delete(updated.Annotations, name)
	}
}
