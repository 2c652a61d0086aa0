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
	"forrst.dev/lock-operator/controllers/leadership"
)

// SetupWithManager has the manager run the gate.
func (g *Gate) SetupWithManager(mgr ctrl.Manager) error {
	g.slots, g.reports = map[client.ObjectKey]*slot{}, newReportLimiter(g.Clock)
	// A cache of its own, so that no other Job is watched, whatever else the manager's
	// cache is used for.
	locked, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}: {Label: labels.SelectorFromSet(labels.Set{v1alpha1.LockLabel: "true"})},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("cache of Jobs: %w", err)
	}
	if g.jobsOf, err = indexJobs(locked); err != nil {
		return fmt.Errorf("index of Jobs: %w", err)
	}
	g.jobs, g.waitForJobs = locked, locked.WaitForCacheSync
	if err := mgr.Add(locked); err != nil {
		return err
	}
	if err := mgr.Add(runnable(g.awaitContenders)); err != nil {
		return err
	}
	if err := g.controller(mgr, "job-gate").
		WatchesRawSource(source.Kind[client.Object](locked, &batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(requestOfJob))).
		WatchesRawSource(source.Kind[client.Object](mgr.GetCache(), &v1alpha1.Lock{}, handler.EnqueueRequestsFromMapFunc(g.requestOfLock))).
		WatchesRawSource(source.Func(g.begin)).
		Complete(g); err != nil {
		return err
	}
	finalizing := finalizing{g}
	return g.controller(mgr, "job-finalizer").
		WatchesRawSource(source.Kind[client.Object](locked, &batchv1.Job{}, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Func(func(ctx context.Context, queue leadership.Queue) error {
			go g.enqueueWhenLeading(ctx, queue, g.everyJob)
			return nil
		})).
		Complete(finalizing)
}

func (g *Gate) controller(mgr ctrl.Manager, name string) *ctrl.Builder {
	everyReplica := false
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		NeedLeaderElection:      &everyReplica,
		MaxConcurrentReconciles: gates,
		ReconciliationTimeout:   passTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, maxBackoff),
	})
}

// runnable runs on every replica.
type runnable func(context.Context) error

// Start implements [manager.Runnable].
func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (runnable) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = runnable(nil)

// awaitContenders has the manager wait at its end for the goroutines that wait for locks.
func (g *Gate) awaitContenders(ctx context.Context) error {
	<-ctx.Done()
	g.mu.Lock()
	g.isEnding = true
	g.mu.Unlock()
	g.contending.Wait()
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

// requestOfLock passes over the locks that no Job wants.
func (g *Gate) requestOfLock(_ context.Context, object client.Object) []reconcile.Request {
	held, ok := object.(*v1alpha1.Lock)
	if !ok || !g.IsForJob(held) && !g.hasSlot(client.ObjectKeyFromObject(held)) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(held)}}
}

// begin lends the gate the queue of its controller and the context that this lives by.
func (g *Gate) begin(ctx context.Context, queue leadership.Queue) error {
	g.working, g.queue = ctx, queue
	go g.enqueueWhenLeading(ctx, queue, g.everyLock)
	return nil
}

func (g *Gate) enqueueWhenLeading(ctx context.Context, queue leadership.Queue, every func(context.Context) ([]reconcile.Request, error)) {
	// Leadership may be gained before there is anything to read.
	if g.waitForJobs(ctx) {
		leadership.Enqueue(ctx, g.Leadership, g.Clock, queue, every)
	}
}

func (g *Gate) everyJob(ctx context.Context) ([]reconcile.Request, error) {
	var list batchv1.JobList
	if err := g.jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests, nil
}

// everyLock returns the locks that a Job wants or holds.
func (g *Gate) everyLock(ctx context.Context) ([]reconcile.Request, error) {
	var list batchv1.JobList
	if err := g.jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestOfJob(ctx, &list.Items[i])...)
	}
	var held v1alpha1.LockList
	if err := g.Client.List(ctx, &held, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range held.Items {
		requests = append(requests, g.requestOfLock(ctx, &held.Items[i])...)
	}
	return requests, nil
}
