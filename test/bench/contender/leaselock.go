package contender

import (
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/measure"
)

// leasePoll is the average interval in which a waiting client reads the Lease.
const leasePoll = time.Second

// leaseLock locks as programs on Kubernetes commonly do: read a Lease, create or update it
// if it is free, or else read it again after a second.
type leaseLock struct {
	leases coordinationclient.LeaseInterface
	owner  string
	// yields says that a client waits for one poll after a release. Otherwise it would
	// always take the lock again before another client reads the Lease.
	yields bool
	held   *coordinationv1.Lease
	// next is when the client reads the Lease again.
	next time.Time
}

// NewLeaseLock returns a lock on a Lease as a contender with an identity. Its clients may yield after a release.
func NewLeaseLock(config *rest.Config, yields bool) (measure.Contender, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return measure.Contender{}, err
	}
	leases := clientset.CoordinationV1().Leases(Namespace)
	return measure.Contender{Name: "Lease, 1 s poll", Resource: "leases", Open: func(_ context.Context, client int) (measure.Locker, error) {
		l := &leaseLock{leases: leases, owner: OwnerOf(client), yields: yields}
		if yields {
			l.next = nextLook()
		}
		return l, nil
	}}, nil
}

// nextLook returns when to read the Lease again: after a second on average. Without the
// scatter, clients that once read at the same moment would do so forever.
func nextLook() time.Time {
	return time.Now().Add(leasePoll/2 + rand.N(leasePoll))
}

// Acquire implements [measure.Locker].
func (l *leaseLock) Acquire(ctx context.Context, key string) error {
	for {
		if err := measure.WaitUntil(ctx, l.next); err != nil {
			return err
		}
		took, err := l.try(ctx, key)
		if took || err != nil {
			return err
		}
		l.next = nextLook()
	}
}

// try reads the Lease once and takes it if it is free.
func (l *leaseLock) try(ctx context.Context, key string) (bool, error) {
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: new(l.owner), LeaseDurationSeconds: new(int32(TTL.Seconds())), AcquireTime: &now, RenewTime: &now,
	}
	current, err := l.leases.Get(ctx, key, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: key}, Spec: spec}
		l.held, err = l.leases.Create(ctx, lease, metav1.CreateOptions{})
	case err != nil:
		return false, err
	case current.Spec.HolderIdentity != nil && *current.Spec.HolderIdentity != "":
		return false, nil
	default:
		current.Spec = spec
		l.held, err = l.leases.Update(ctx, current, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// Release implements [measure.Locker].
func (l *leaseLock) Release(ctx context.Context, _ string) error {
	l.held.Spec.HolderIdentity = new("")
	_, err := l.leases.Update(ctx, l.held, metav1.UpdateOptions{})
	if l.yields {
		l.next = nextLook()
	}
	return err
}

// Close implements [measure.Locker].
func (l *leaseLock) Close() {}
