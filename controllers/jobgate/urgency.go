package jobgate

import (
	"context"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/fairqueue"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// passResult is what the queue must know of the last pass over a lock.
type passResult struct {
	// owner and version are those of the lock that a Job holds. An empty owner means that none does.
	owner, version string
	// mustStop says that a Job runs without the lock.
	mustStop bool
}

// lockEvent is what the newest event about a lock has shown.
type lockEvent struct {
	// owner is empty if the lock is gone, and gone is then its last owner that is known.
	owner, gone, version string
	// forceReason is the reason of the forced release that ended the lock of the owner gone, if any.
	forceReason string
	// isForJob says that the lock was taken for a Job.
	isForJob bool
}

// urgencyOf returns the class of a pass over the lock that the request names.
func (r *Reconciler) urgencyOf(request reconcile.Request) fairqueue.Urgency {
	r.mu.Lock()
	state := r.states[request.NamespacedName]
	r.mu.Unlock()
	if state == nil {
		return fairqueue.Start
	}
	return urgencyOf(state.lastPass.Load(), state.lastEvent.Load())
}

// urgencyOf returns the class of the next pass over a lock. Either may be nil.
func urgencyOf(pass *passResult, shown *lockEvent) fairqueue.Urgency {
	switch {
	case pass != nil && (pass.mustStop || pass.isEndedBy(shown)):
		return fairqueue.Stop
	case pass != nil && pass.owner != "", shown != nil && shown.isForJob:
		return fairqueue.Hold
	}
	return fairqueue.Start
}

// isEndedBy reports whether the event shows that the Job no longer holds the lock.
func (r *passResult) isEndedBy(shown *lockEvent) bool {
	if r.owner == "" || shown == nil {
		return false
	}
	// What is shown of a deletion that the watch has missed is old.
	return shown.gone == r.owner || shown.owner != r.owner && rules.IsNewer(shown.version, r.version)
}

// result returns what the queue must know of the pass.
func (p *pass) result() *passResult {
	result := &passResult{}
	if held := p.state.grant; held != nil {
		result.owner, result.version = held.lock.Spec.Owner, held.lock.ResourceVersion
	}
	for _, candidate := range p.candidates {
		if candidate.phase == jobs.Running && !candidate.isCacheStale && !p.isHolder(candidate) {
			result.mustStop = true
		}
	}
	return result
}

// lockEvents causes a pass over each lock that a Job wants or holds when the lock changes, but for
// renewals: of many idle Jobs these would cost as many passes as the renewals themselves.
func (r *Reconciler) lockEvents() handler.EventHandler {
	enqueue := func(queue leadership.Queue, held *v1alpha1.Lock, isGone bool) {
		if r.noteEvent(held, isGone) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(held)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, created event.CreateEvent, queue leadership.Queue) {
			if held, ok := created.Object.(*v1alpha1.Lock); ok {
				enqueue(queue, held, false)
			}
		},
		UpdateFunc: func(_ context.Context, updated event.UpdateEvent, queue leadership.Queue) {
			before, wasLock := updated.ObjectOld.(*v1alpha1.Lock)
			held, isLock := updated.ObjectNew.(*v1alpha1.Lock)
			if wasLock && isLock && !isRenewal(before, held) {
				enqueue(queue, held, false)
			}
		},
		DeleteFunc: func(_ context.Context, deleted event.DeleteEvent, queue leadership.Queue) {
			if held, ok := deleted.Object.(*v1alpha1.Lock); ok {
				enqueue(queue, held, true)
			}
		},
	}
}

// noteEvent records what is shown of a lock, and reports whether a Job wants or holds it.
func (r *Reconciler) noteEvent(held *v1alpha1.Lock, isGone bool) bool {
	name, isForJob := client.ObjectKeyFromObject(held), r.IsForJob(held)
	if !isForJob && !r.hasState(name) {
		return false
	}
	shown := &lockEvent{version: held.ResourceVersion}
	if isGone {
		shown.gone, shown.forceReason = held.Spec.Owner, held.Annotations[v1alpha1.ForceReleaseReasonAnnotation]
	} else {
		shown.owner, shown.isForJob = held.Spec.Owner, isForJob
	}
	r.state(name).lastEvent.Store(shown)
	return true
}

// isRenewal reports whether the update is a renewal or changes nothing that a pass reads: the holder
// keeps the lock for at least as long as before. A lock that the cache has shown as expired and that was
// renewed all the same is adopted at the next resync.
func isRenewal(before, after *v1alpha1.Lock) bool {
	was, is := &before.Spec, &after.Spec
	return before.UID == after.UID && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
		was.Owner == is.Owner && was.Holder == is.Holder && ptr.Equal(was.HolderRef, is.HolderRef) && was.AcquireTime.Equal(is.AcquireTime) &&
		was.ExpireTime != nil && is.ExpireTime != nil && !is.ExpireTime.Time.Before(was.ExpireTime.Time)
}
