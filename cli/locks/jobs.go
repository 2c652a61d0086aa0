package locks

import (
	"context"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/lock/jobs"
)

// Job is a Job that runs under a lock.
type Job struct {
	Name  string
	UID   types.UID
	Phase jobs.Phase
	// Lock is the lock of the Job.
	Lock ID
	// Turn orders the Jobs that wait for a lock.
	Turn jobs.Turn
	// Refusal is the last refusal of the lock or of the start; nil if there is none.
	Refusal *jobs.Refusal
	// NotRun says why the operator has ended the Job without its Pods; empty if it has not.
	NotRun string
	// MayHavePods says that Pods of the Job may not have ended. No other Job of the lock is started before they have.
	MayHavePods bool
	// QueuesAgain says that a Job without its lock waits for it again once its Pods have ended.
	QueuesAgain bool
}

// JobOf returns nil for a Job that does not run under a lock, or whose annotations are not valid.
func JobOf(job *batchv1.Job) *Job {
	terms, problems := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	if len(problems) > 0 || !jobs.IsLocked(job) {
		return nil
	}
	phase := jobs.PhaseOf(job)
	return &Job{
		Name: job.Name, UID: job.UID, Phase: phase, Lock: ID{job.Namespace, terms.FullKey()},
		Turn: jobs.TurnOf(job, terms), Refusal: jobs.RefusalOf(job), NotRun: jobs.NotRun(job), MayHavePods: jobs.MayHaveLivePods(job, phase),
		QueuesAgain: (phase == jobs.Stopping || phase == jobs.Running) && job.DeletionTimestamp.IsZero(),
	}
}

// Jobs returns the Jobs that run under locks of a namespace, or of all if it is empty.
func Jobs(ctx context.Context, reader client.Reader, namespace string) ([]Job, error) {
	var found []Job
	options := &client.ListOptions{Namespace: namespace, Limit: PageSize}
	client.MatchingLabels{v1alpha1.LockLabel: "true"}.ApplyToList(options)
	for {
		var page batchv1.JobList
		if err := reader.List(ctx, &page, options); err != nil {
			return nil, err
		}
		for index := range page.Items {
			if job := JobOf(&page.Items[index]); job != nil {
				found = append(found, *job)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// Waiting returns the Jobs that wait for each lock, in the order in which they will have it. Callers that wait
// through a façade or with an SDK are not stored in the cluster, so they are not among them.
func Waiting(all []Job) map[ID][]Job {
	waiting := map[ID][]Job{}
	for _, job := range all {
		if job.Phase == jobs.Waiting {
			waiting[job.Lock] = append(waiting[job.Lock], job)
		}
	}
	for _, each := range waiting {
		slices.SortFunc(each, func(a, b Job) int { return a.Turn.Compare(b.Turn) })
	}
	return waiting
}

// WaitingJobs is [Waiting] of [Jobs].
func WaitingJobs(ctx context.Context, reader client.Reader, namespace string) (map[ID][]Job, error) {
	all, err := Jobs(ctx, reader, namespace)
	if err != nil {
		return nil, err
	}
	return Waiting(all), nil
}

// Waiters writes how many are known to wait for a lock. Unless these are all, others may: none is then [human.Never], since
// a zero would say that nobody waits, and more are a number with a plus.
func Waiters(known int, areAll bool) string {
	switch {
	case areAll:
		return strconv.Itoa(known)
	case known == 0:
		return human.Never
	}
	return strconv.Itoa(known) + "+"
}

// FindJob returns the Job of that name if it runs under a lock, and nil if there is none,
// or if the user may not read it.
func FindJob(ctx context.Context, reader client.Reader, namespace, name string) (*Job, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	job := new(batchv1.Job)
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, err
	}
	return JobOf(job), nil
}

// Holds reports whether the lock is held for the Job.
func (j *Job) Holds(lock *v1alpha1.Lock) bool {
	return lock != nil && IDOf(lock) == j.Lock && lock.Spec.HolderRef != nil && lock.Spec.HolderRef.UID == j.UID
}

// ObjectName returns the kind and the name in "job/NAME" or "pod/NAME", as kubectl and the column HOLDER write
// them, and reports whether the text is one of these.
func ObjectName(text string) (kind, name string, isObject bool) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return "", "", false
	}
	switch strings.ToLower(kind) {
	case "job", "jobs", "job.batch", "jobs.batch":
		return "Job", name, true
	case "pod", "pods", "po":
		return "Pod", name, true
	}
	return "", "", false
}
