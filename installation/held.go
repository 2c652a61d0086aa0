package installation

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// pageSize bounds how many objects are read at a time.
const pageSize = 500

// Held returns a line for each Job that the operator has not let go of and for each lock that is held, in
// all namespaces. Without the operator such a Job waits forever, or cannot be deleted, and such a lock
// cannot be renewed. Without the definition of Locks none is held. Now should
// follow the API server's clock.
func Held(ctx context.Context, reader client.Reader, now clock.PassiveClock) ([]string, error) {
	var lines []string
	err := eachPage(ctx, reader, func(page *batchv1.JobList) {
		for i := range page.Items {
			// A Job may have lost its label while the webhook was away.
			if job := &page.Items[i]; !jobs.IsCleared(job) {
				lines = append(lines, fmt.Sprintf("Job %s/%s has the finalizer %s: %s", job.Namespace, job.Name, v1alpha1.LockFinalizer, jobs.PhaseOf(job)))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	err = eachPage(ctx, reader, func(page *v1alpha1.LockList) {
		for i := range page.Items {
			lock := &page.Items[i]
			if !rules.Expired(lock, now.Now()) {
				lines = append(lines, fmt.Sprintf("Lock %s/%s is held by %q until %s", lock.Namespace, lock.Name, lock.Spec.Holder, lock.Spec.ExpireTime.UTC().Format(time.RFC3339)))
			}
		}
	})
	if err != nil && !isUnknownKind(err) {
		return nil, fmt.Errorf("list Locks: %w", err)
	}
	return lines, nil
}

// isUnknownKind reports whether the API server has no such resource, as when the definition of Locks is gone.
func isUnknownKind(err error) bool {
	return apimeta.IsNoMatchError(err) || errors.Is(err, apianswers.ErrNotServed)
}

// listOf is a list type that T points to.
type listOf[T any] interface {
	*T
	client.ObjectList
}

// eachPage calls use for each page. A list that is decoded into twice would keep fields of the first time.
func eachPage[T any, L listOf[T]](ctx context.Context, reader client.Reader, use func(page L)) error {
	next := ""
	for {
		page := L(new(T))
		if err := reader.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		use(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
