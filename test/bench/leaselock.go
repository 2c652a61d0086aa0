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

// leasePoll is how often a waiting client of a Lease looks.
const leasePoll = time.Second

// leaseLock locks as programs on Kubernetes do today: read a Lease, create or update
// it if it is free, look again after a second if not.
type leaseLock struct {
	leases coordinationclient.LeaseInterface
	owner  string
	// yields says that a client that has released leaves the lock to others for one
	// poll. Otherwise it would always take it again before anybody looks, and nobody
	// else ever held it.
	yields bool
	held   *coordinationv1.Lease
	// next is when the client looks again.
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

// nextLook returns when to look again: after a second on average. Without the
// scatter, clients that once looked at the same moment would do so forever.
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

// try looks once and takes the Lease if it is free.
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

// waitUntil returns at the time, at once if it is past.
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
