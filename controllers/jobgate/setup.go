package jobgate

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/fairqueue"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/jobs"
)

// SetupWithManager adds the reconciler of locks and that of finalizers to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.states, r.reports = map[client.ObjectKey]*lockState{}, newReportLimiter(r.Clock)
	// A cache of its own: the manager's may watch all Jobs, this one only those with the label.
	locked, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}: {Label: labels.SelectorFromSet(labels.Set{v1alpha1.LockLabel: "true"}), Transform: stripJob},
		},
	})
	if err != nil {
		return fmt.Errorf("cache of Jobs: %w", err)
	}
	if r.jobsOf, err = indexJobs(locked); err != nil {
		return fmt.Errorf("index of Jobs: %w", err)
	}
	r.jobs, r.waitForJobs = locked, locked.WaitForCacheSync
	if err := mgr.Add(locked); err != nil {
		return err
	}
	if err := mgr.Add(runnable(r.awaitBackground)); err != nil {
		return err
	}
	if err := r.controller(mgr, "job-gate", r.urgencyOf).
		WatchesRawSource(source.Kind[client.Object](locked, &batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(requestOfJob))).
		WatchesRawSource(source.Kind[client.Object](mgr.GetCache(), &v1alpha1.Lock{}, r.lockEvents())).
		WatchesRawSource(source.Func(r.begin)).
		Complete(r); err != nil {
		return err
	}
	finalizerReconciler := finalizerReconciler{r}
	return r.controller(mgr, "job-finalizer", func(reconcile.Request) fairqueue.Urgency { return fairqueue.Start }).
		WatchesRawSource(source.Kind[client.Object](locked, &batchv1.Job{}, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Func(func(ctx context.Context, queue leadership.Queue) error {
			go r.enqueueWhenLeading(ctx, queue, r.everyJob)
			return nil
		})).
		Complete(finalizerReconciler)
}

// stripJob reduces Jobs to what this package reads. It must write them by merge patches only.
func stripJob(object any) (any, error) {
	if job, ok := object.(*batchv1.Job); ok {
		return jobs.Stripped(job), nil
	}
	return object, nil // the tombstone of a stripped Job
}

// controller returns a controller that serves namespaces in turn: the passes of one must not delay
// those of another. UrgencyOf tells which passes of a namespace come first.
func (r *Reconciler) controller(mgr ctrl.Manager, name string, urgencyOf func(reconcile.Request) fairqueue.Urgency) *ctrl.Builder {
	everyReplica := false
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		NeedLeaderElection:      &everyReplica,
		MaxConcurrentReconciles: concurrency,
		ReconciliationTimeout:   passTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, maxBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) leadership.Queue {
			return fairqueue.New(name, limiter, urgencyOf)
		},
	})
}

// runnable runs on every replica.
type runnable func(context.Context) error

// Start implements [manager.Runnable].
func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (runnable) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = runnable(nil)

// awaitBackground lets the manager wait at its end for the goroutines in the background.
func (r *Reconciler) awaitBackground(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	r.isEnding = true
	r.mu.Unlock()
	r.background.Wait()
	return nil
}

func requestOfJob(_ context.Context, object client.Object) []reconcile.Request {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return nil
	}
	name := lockNameOf(job)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: job.Namespace, Name: name}}}
}

// begin stores the queue of the controller and its context.
func (r *Reconciler) begin(ctx context.Context, queue leadership.Queue) error {
	r.working, r.workqueue = ctx, queue
	go r.enqueueWhenLeading(ctx, queue, r.everyLock)
	return nil
}

func (r *Reconciler) enqueueWhenLeading(ctx context.Context, queue leadership.Queue, every func(context.Context) ([]reconcile.Request, error)) {
	// Leadership may be gained before the cache is filled.
	if r.waitForJobs(ctx) {
		leadership.Enqueue(ctx, r.Leadership, r.Clock, queue, every)
	}
}

func (r *Reconciler) everyJob(ctx context.Context) ([]reconcile.Request, error) {
	var list batchv1.JobList
	if err := r.jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests, nil
}

// everyLock returns the locks that a Job wants or holds.
func (r *Reconciler) everyLock(ctx context.Context) ([]reconcile.Request, error) {
	var list batchv1.JobList
	if err := r.jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestOfJob(ctx, &list.Items[i])...)
	}
	var held v1alpha1.LockList
	if err := r.Client.List(ctx, &held, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range held.Items {
		if r.noteEvent(&held.Items[i], false) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&held.Items[i])})
		}
	}
	return requests, nil
}
