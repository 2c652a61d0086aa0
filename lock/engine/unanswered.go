package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// definitelyNotApplied reports whether the write that failed with err certainly did not happen:
// the API server refused it, or it was never sent. After a timeout, a broken connection or an
// internal error of the API server it may have happened: etcd may have committed before the answer
// was lost.
func definitelyNotApplied(err error) bool {
	if _, ok := errors.AsType[*unansweredError](err); ok {
		return false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code < http.StatusInternalServerError
	}
	return neverSent(err)
}

// unansweredError says that a write went unanswered which was sent several times, whatever the last answer was.
type unansweredError struct{ error }

// Unwrap implements the interface of [errors.Is].
func (e *unansweredError) Unwrap() error { return e.error }

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
	if refusal.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return current, nil
}

// readOnce is get, bounded by the operation timeout.
func (e *Engine) readOnce(ctx context.Context, name types.NamespacedName) (*v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return get(ctx, e.objects(name.Namespace), name.Name)
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

// errHeldAnew says that the grant which a call was about is over, or may be, while the lock is held under the same owner
// token again. The next call of its owner is about that grant.
var errHeldAnew = fmt.Errorf("the lock is held under the same owner token anew: %w", lock.ErrUnavailable)

// narrowing is the proof of one release or renewal, narrowed to the grant that the call has found: a call that goes on,
// such as after an unanswered write, must not end or shorten a later grant to the same owner, whose request may have
// been sent after this one was given up.
type narrowing struct {
	given rules.Proof
	// narrowed is nil until the call has found a grant. WasRead says that it was read by this call, so that it is the one
	// that the caller means. What the engine remembers may be older than that.
	narrowed *rules.Proof
	wasRead  bool
}

// proof returns the proof to judge by.
func (n *narrowing) proof() rules.Proof {
	if n.narrowed != nil {
		return *n.narrowed
	}
	return n.given
}

// narrowTo narrows the proof to a grant that the engine remembers, and has tried to change.
func (n *narrowing) narrowTo(known *v1alpha1.Lock) {
	if n.narrowed == nil {
		n.narrowed = new(n.given.LimitedTo(known))
	}
}

// release is [rules.Release] of an object that was read just now.
func (n *narrowing) release(current *v1alpha1.Lock, now time.Time) error {
	err := rules.Release(current, n.proof(), now)
	n.judged(current, err)
	return n.explain(current, err, now)
}

// judged narrows the proof to an object that was read just now, if it permits what is asked for.
func (n *narrowing) judged(current *v1alpha1.Lock, err error) {
	if err == nil && !n.wasRead {
		n.narrowed, n.wasRead = new(n.proof().LimitedTo(current)), true
	}
}

// explain returns errHeldAnew for an object that is refused only since the proof was narrowed to a grant that the engine
// remembered: the caller may mean this one.
func (n *narrowing) explain(current *v1alpha1.Lock, err error, now time.Time) error {
	if errors.Is(err, rules.ErrNotHeld) && n.narrowed != nil && !n.wasRead && rules.Release(current, n.given, now) == nil {
		return errHeldAnew
	}
	return err
}
