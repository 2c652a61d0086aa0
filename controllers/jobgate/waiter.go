package jobgate

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/tracing"
)

// door is how Jobs come to a line, for those that list it.
const door = "job"

// waiter waits for a lock on behalf of one Job, at the place of that in the line: a release hands the lock off to it in
// one write.
type waiter struct {
	job types.UID
	// owner is the owner token of its request.
	owner  string
	cancel context.CancelFunc
	// done is closed when lock and err are set.
	done chan struct{}
	lock *v1alpha1.Lock
	err  error
	// trace is that of the Job, and ended by an error. Only its goroutine uses it before done is closed.
	trace *tracing.Job
}

// beginTrace begins the trace of a Job that asks for its lock.
func (p *pass) beginTrace(candidate *jobInfo) *tracing.Job {
	return p.Tracer.BeginJob(p.name.Namespace, candidate.job.Name, candidate.lockOptions.FullKey(), candidate.orderingKey.WaitsSince)
}

// request returns the request to the engine for a Job.
func (r *Reconciler) request(candidate *jobInfo) lock.Request {
	options := candidate.lockOptions
	return lock.Request{Door: door, Acquisition: rules.Acquisition{
		Scope: options.Scope, Function: options.Function, Key: options.Key, TTL: options.TTL,
		Owner: lock.NewOwner(), Holder: r.Holder, HolderRef: candidate.ref(), Reason: "Job " + candidate.job.Name,
	}}
}

// acquire asks the engine for a lock, and counts how that ended.
func (r *Reconciler) acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	granted, err := r.Engine.Acquire(ctx, namespace, request)
	if r.Count != nil {
		r.Count(observe.EndOf(err))
	}
	if invalid, ok := errors.AsType[*lock.InvalidError](err); ok {
		err = &lock.RefusedError{Reason: invalid.Error()} // An earlier release has admitted the Job and its key.
	}
	return granted, err
}

// startWaiter starts to wait for the lock on behalf of the Job. The end of the wait causes a
// pass.
func (p *pass) startWaiter(candidate *jobInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnding {
		return
	}
	ctx, cancel := context.WithCancel(p.working)
	request := p.request(candidate)
	request.Wait, request.Since = lock.WaitForever, candidate.orderingKey.WaitsSince
	waiting := &waiter{job: candidate.job.UID, owner: request.Owner, cancel: cancel, done: make(chan struct{}), trace: p.beginTrace(candidate)}
	p.state.waiter = waiting
	p.background.Go(func() {
		defer cancel()
		waiting.lock, waiting.err = p.acquire(waiting.trace.Within(ctx), p.name.Namespace, request)
		if waiting.err != nil {
			waiting.trace.Failed(waiting.err)
		}
		close(waiting.done)
		p.workqueue.Add(reconcile.Request{NamespacedName: p.name})
	})
}

// collectWaiter takes over the result of the waiter, if its wait is over.
func (p *pass) collectWaiter() error {
	waiting := p.state.waiter
	if waiting == nil {
		return nil
	}
	select {
	case <-waiting.done:
	default:
		return nil
	}
	p.state.waiter = nil
	if waiting.err == nil {
		p.recordGrant(waiting.job, waiting.lock, waiting.trace)
		return nil
	}
	// The engine ends a grant that it could not deliver, although the cache may show it.
	p.state.recordReleased(waiting.owner)
	if errors.Is(waiting.err, context.Canceled) {
		return nil
	}
	if candidate := p.state.jobQueue.byUID[waiting.job]; candidate != nil {
		p.recordRefusedLock(candidate, waiting.err)
		p.backOffRefused(candidate, waiting.err)
	}
	return fmt.Errorf("acquire it: %w", waiting.err)
}

// cancelWaiter ends the wait of the waiter. A grant that came at the last moment is
// recorded like any other.
func (p *pass) cancelWaiter(ctx context.Context) error {
	waiting := p.state.waiter
	if waiting == nil {
		return nil
	}
	waiting.cancel()
	select {
	case <-waiting.done:
		return p.collectWaiter()
	case <-ctx.Done():
		return ctx.Err()
	}
}
