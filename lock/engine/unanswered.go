package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/observe"
)

// definitelyNotApplied reports whether the write that failed with err certainly did not happen:
// the API server refused it, or it was never sent. After a timeout, a broken connection or an
// internal error of the API server it may have happened: etcd may have committed before the answer
// was lost.
func definitelyNotApplied(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code < 500
	}
	return neverSent(err)
}

// MayHaveHappened reports whether a write to the API server that failed with err may have
// happened.
func MayHaveHappened(err error) bool { return !definitelyNotApplied(err) }

// neverSent reports whether the request had no connection to be sent on.
func neverSent(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}

// get returns the object under the name from etcd, or nil if there is none.
func get(ctx context.Context, objects Objects, name string) (*v1alpha1.Lock, error) {
	current, err := objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return current, nil
}

// readBack is get after an unanswered write. It tries until the API server answers or ctx ends:
// the engine reports nothing before it knows whether the write happened.
func (e *Engine) readBack(ctx context.Context, objects Objects, name string) (*v1alpha1.Lock, error) {
	backoff := newBackoff()
	for {
		current, err := get(ctx, objects, name)
		if err == nil || definitelyNotApplied(err) && !neverSent(err) {
			return current, err
		}
		if !e.pause(ctx, &backoff) {
			return nil, err
		}
	}
}

// outcomeOf returns how an unanswered write ended, by the error of reading back and by whether what was
// read shows that it happened.
func outcomeOf(hasHappened bool, err error) observe.Outcome {
	switch {
	case err != nil:
		return observe.Unknown
	case hasHappened:
		return observe.Happened
	}
	return observe.NotHappened
}

// newBackoff spaces requests to an API server that does not answer.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: time.Second}
}

// pause waits for the next step. It returns false if ctx ends first.
func (e *Engine) pause(ctx context.Context, backoff *wait.Backoff) bool {
	select {
	case <-ctx.Done():
		return false
	case <-e.clock.After(backoff.Step()):
		return true
	}
}
