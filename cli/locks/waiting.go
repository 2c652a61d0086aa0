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

// ID identifies a lock in all namespaces.
type ID struct {
	Namespace string
	Key       v1alpha1.FullKey
}

// IDOf returns the ID of a lock.
func IDOf(lock *v1alpha1.Lock) ID { return ID{lock.Namespace, lock.Spec.FullKey()} }

// WaitingJob is a Job that waits for its lock.
type WaitingJob struct {
	Name string
	Turn jobs.Turn
	// Refusal is what the Job was told last; nil if it was not refused its lock or its start.
	Refusal *jobs.Refusal
}

// WaitingJobs returns the Jobs that wait for each lock of a namespace, or of all if it is
// empty, in the order in which they will have it. Callers that wait through a façade or
// with an SDK are not stored in the cluster, so they are not among them.
func WaitingJobs(ctx context.Context, reader client.Reader, namespace string) (map[ID][]WaitingJob, error) {
	waiting := map[ID][]WaitingJob{}
	err := eachLockedJob(ctx, reader, namespace, func(job *batchv1.Job, id ID, terms jobs.Terms) {
		if jobs.PhaseOf(job) == jobs.Waiting {
			waiting[id] = append(waiting[id], WaitingJob{Name: job.Name, Turn: jobs.TurnOf(job, terms), Refusal: jobs.RefusalOf(job)})
		}
	})
	if err != nil {
		return nil, err
	}
	for _, each := range waiting {
		slices.SortFunc(each, func(a, b WaitingJob) int { return a.Turn.Compare(b.Turn) })
	}
	return waiting, nil
}

// Waiters writes how many are known to wait for a lock. Unless these are all, others may: none is then [human.Never], since
// a zero would say that the line is empty, and more are a number with a plus.
func Waiters(known int, areAll bool) string {
	switch {
	case areAll:
		return strconv.Itoa(known)
	case known == 0:
		return human.Never
	}
	return strconv.Itoa(known) + "+"
}

// LeavingJob is a Job that does not hold its lock, and whose Pods may not have ended. No other Job of the
// lock is started before they have.
type LeavingJob struct {
	Name  string
	UID   types.UID
	Phase jobs.Phase
	// QueuesAgain says that the Job waits for the lock again once its Pods have ended.
	QueuesAgain bool
}

// LeavingJobs returns the Jobs of a lock, but for its holder, whose Pods may not have ended, by name.
func LeavingJobs(ctx context.Context, reader client.Reader, lock ID, holder types.UID) ([]LeavingJob, error) {
	var leaving []LeavingJob
	err := eachLockedJob(ctx, reader, lock.Namespace, func(job *batchv1.Job, id ID, _ jobs.Terms) {
		phase := jobs.PhaseOf(job)
		if id == lock && job.UID != holder && jobs.MayHaveLivePods(job, phase) {
			queuesAgain := (phase == jobs.Stopping || phase == jobs.Running) && job.DeletionTimestamp.IsZero()
			leaving = append(leaving, LeavingJob{Name: job.Name, UID: job.UID, Phase: phase, QueuesAgain: queuesAgain})
		}
	})
	slices.SortFunc(leaving, func(a, b LeavingJob) int { return strings.Compare(a.Name, b.Name) })
	return leaving, err
}

// eachLockedJob shows each Job that runs under a lock in a namespace, or in all if it is empty.
func eachLockedJob(ctx context.Context, reader client.Reader, namespace string, each func(*batchv1.Job, ID, jobs.Terms)) error {
	options := &client.ListOptions{Namespace: namespace, Limit: PageSize}
	client.MatchingLabels{v1alpha1.LockLabel: "true"}.ApplyToList(options)
	for {
		var page batchv1.JobList
		if err := reader.List(ctx, &page, options); err != nil {
			return err
		}
		for index := range page.Items {
			job := &page.Items[index]
			if terms, problems := jobs.ParseTerms(job.Annotations, jobs.Limits{}); len(problems) == 0 {
				each(job, ID{job.Namespace, terms.FullKey()}, terms)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// LockedJob is a Job that runs under a lock.
type LockedJob struct {
	Name  string
	UID   types.UID
	Phase jobs.Phase
	// ID is that of its lock.
	ID ID
	// Refusal is what the Job was told last; nil if it was not refused its lock or its start.
	Refusal *jobs.Refusal
}

// FindJob returns the Job of that name if it runs under a lock, and nil if there is none,
// or if the user may not read it.
func FindJob(ctx context.Context, reader client.Reader, namespace, name string) (*LockedJob, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	job := new(batchv1.Job)
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil || !jobs.IsLocked(job) {
		return nil, err
	}
	terms, problems := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	if len(problems) > 0 {
		return nil, nil
	}
	return &LockedJob{
		Name: job.Name, UID: job.UID, Phase: jobs.PhaseOf(job), ID: ID{job.Namespace, terms.FullKey()}, Refusal: jobs.RefusalOf(job),
	}, nil
}

// Holds reports whether the lock is held for the Job.
func (j *LockedJob) Holds(lock *v1alpha1.Lock) bool {
	return lock != nil && IDOf(lock) == j.ID && lock.Spec.HolderRef != nil && lock.Spec.HolderRef.UID == j.UID
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
