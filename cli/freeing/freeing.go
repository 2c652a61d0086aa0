// Package freeing ends the lock that a person has looked at, and no other: not one of the same key that
// was granted since.
package freeing

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// attempts is how often the deletion is tried while the lock changes, as by renewals, which are rare compared with two requests.
const attempts = 10

var (
	// ErrAnotherGrant means that the lock has been granted anew since it was shown. Nothing was done to
	// the new grant.
	ErrAnotherGrant = errors.New("the lock has been granted anew")
	// ErrGone means that the lock has ended by itself.
	ErrGone = errors.New("the lock has ended meanwhile")
	// ErrBusy means that the lock has changed too often to be ended.
	ErrBusy = errors.New("the lock changes too often")
	// ErrKept means that the deletion was admitted, and that finalizers keep the object.
	ErrKept = errors.New("the lock is being deleted, and finalizers keep it")
)

// Order says how to end a lock.
type Order struct {
	// Shown is the lock as the person has seen it. Only this grant is ended, also if it is renewed
	// meanwhile.
	Shown *v1alpha1.Lock
	// Reason goes on record. Empty if the person is the holder, who needs none.
	Reason string
	// IsDryRun has the API server judge the first write, and store nothing.
	IsDryRun bool
}

// IsSameGrant reports whether two versions of a lock are of one grant: a take-over keeps the UID, and
// never the time of the acquisition.
func IsSameGrant(one, other *v1alpha1.Lock) bool {
	return one.UID == other.UID && one.Spec.AcquireTime.Equal(other.Spec.AcquireTime)
}

// Carry ends the lock, in one write or, with a reason, two. Each is conditional on the version that is
// known. It goes on when ctx ends after the reason was written, which must not stay on a lock that
// goes on. The error matches one of those above, or is the API server's.
func (o Order) Carry(ctx context.Context, cluster client.Client) error {
	if o.IsDryRun {
		cluster = client.NewDryRunClient(cluster)
	}
	current, lasting := o.Shown, context.WithoutCancel(ctx)
	for attempt := range attempts {
		if attempt > 0 {
			var err error
			if current, err = o.read(ctx, cluster); err != nil {
				return err
			}
		}
		if o.Reason != "" {
			announced, err := o.announce(ctx, cluster, current)
			switch {
			case apierrors.IsConflict(err):
				continue
			case apierrors.IsNotFound(err):
				return ErrGone
			case err != nil || o.IsDryRun:
				return err
			}
			current = announced
			ctx = lasting //nolint:fatcontext // it wraps the first one, whatever the attempt
		}
		err := cluster.Delete(ctx, current, client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion})
		switch {
		case apierrors.IsConflict(err):
		case apierrors.IsNotFound(err):
			return ErrGone
		case err != nil || o.IsDryRun:
			return err
		default:
			return o.checkGone(ctx, cluster)
		}
	}
	return ErrBusy
}

// announce writes the reason, which admission requires before the deletion. A patch leaves the spec as
// its holder has written it.
func (o Order) announce(ctx context.Context, cluster client.Client, current *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	next := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, o.Reason)
	return next, cluster.Patch(ctx, next, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
}

func (o Order) read(ctx context.Context, cluster client.Client) (*v1alpha1.Lock, error) {
	current := &v1alpha1.Lock{}
	err := cluster.Get(ctx, client.ObjectKeyFromObject(o.Shown), current)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrGone
	case err != nil:
		return nil, err
	case !IsSameGrant(o.Shown, current):
		return nil, fmt.Errorf("%w, to %q", ErrAnotherGrant, current.Spec.Holder)
	}
	return current, nil
}

// checkGone returns [ErrKept] if the deletion has not removed the object.
func (o Order) checkGone(ctx context.Context, cluster client.Client) error {
	left, err := o.read(ctx, cluster)
	if err != nil || left.DeletionTimestamp == nil {
		return nil //nolint:nilerr // it has ended; another grant, or an answer that is missing, is no failure
	}
	return fmt.Errorf("%w: %s", ErrKept, strings.Join(left.Finalizers, ", "))
}
