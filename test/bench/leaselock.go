package main

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

func newLeaseLock(config *rest.Config, yields bool) (contender, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return contender{}, err
	}
	leases := clientset.CoordinationV1().Leases(namespace)
	return contender{name: "Lease, 1 s poll", resource: "leases", open: func(_ context.Context, client int) (locker, error) {
		l := &leaseLock{leases: leases, owner: ownerOf(client), yields: yields}
		if yields {
			l.next = nextLook()
		}
		return l, nil
	}}, nil
}

// nextLook returns when to read the Lease again: after a second on average. Without the
// scatter, clients that once read at the same moment would do so forever.
func nextLook() time.Time {
	return time.Now().Add(leasePoll/2 + rand.N(leasePoll)) //nolint:gosec // not a secret
}

func (l *leaseLock) acquire(ctx context.Context, key string) error {
	for {
		if err := waitUntil(ctx, l.next); err != nil {
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
		HolderIdentity: new(l.owner), LeaseDurationSeconds: new(int32(ttl.Seconds())), AcquireTime: &now, RenewTime: &now,
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

func (l *leaseLock) release(ctx context.Context, _ string) error {
	l.held.Spec.HolderIdentity = new("")
	_, err := l.leases.Update(ctx, l.held, metav1.UpdateOptions{})
	if l.yields {
		l.next = nextLook()
	}
	return err
}

func (l *leaseLock) close() {}

// waitUntil waits until the time, or until ctx ends.
func waitUntil(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
