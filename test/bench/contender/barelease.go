package contender

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/measure"
)

// bareLease creates and deletes a Lease, the built-in object of the same purpose.
type bareLease struct {
	leases coordinationclient.LeaseInterface
	owner  string
}

// NewBareLease returns a bare Lease as a contender with an identity.
func NewBareLease(config *rest.Config) (measure.Contender, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return measure.Contender{}, err
	}
	leases := clientset.CoordinationV1().Leases(Namespace)
	return measure.Contender{Name: "bare Lease: create + delete", Resource: "leases", Open: func(_ context.Context, client int) (measure.Locker, error) {
		return &bareLease{leases: leases, owner: OwnerOf(client)}, nil
	}}, nil
}

func bareLeaseName(key string) string { return "bare-" + key }

// Acquire implements [measure.Locker].
func (b *bareLease) Acquire(ctx context.Context, key string) error {
	now := metav1.NowMicro()
	_, err := b.leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: bareLeaseName(key)},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(b.owner), LeaseDurationSeconds: new(int32(TTL.Seconds())), AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	return err
}

// Release implements [measure.Locker].
func (b *bareLease) Release(ctx context.Context, key string) error {
	return b.leases.Delete(ctx, bareLeaseName(key), metav1.DeleteOptions{})
}

// Close implements [measure.Locker].
func (b *bareLease) Close() {}
