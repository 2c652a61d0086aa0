package locks

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
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
}

// WaitingJobs returns the Jobs that wait for each lock of a namespace, or of all if it is
// empty, in the order in which they will have it. Callers that wait through a façade or
// with an SDK are not stored in the cluster, so they are not among them.
func WaitingJobs(ctx context.Context, reader client.Reader, namespace string) (map[ID][]WaitingJob, error) {
	waiting := map[ID][]WaitingJob{}
	options := &client.ListOptions{Namespace: namespace, Limit: PageSize}
	client.MatchingLabels{v1alpha1.LockLabel: "true"}.ApplyToList(options)
	for {
		var page batchv1.JobList
		if err := reader.List(ctx, &page, options); err != nil {
			return nil, err
		}
		for index := range page.Items {
			job := &page.Items[index]
			terms, problems := jobs.ParseTerms(job.Annotations, jobs.Limits{})
			if len(problems) == 0 && jobs.PhaseOf(job) == jobs.Waiting {
				id := ID{job.Namespace, terms.FullKey()}
				waiting[id] = append(waiting[id], WaitingJob{Name: job.Name, Turn: jobs.TurnOf(job, terms)})
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	for _, each := range waiting {
		slices.SortFunc(each, func(a, b WaitingJob) int { return a.Turn.Compare(b.Turn) })
	}
	return waiting, nil
}
