package contender

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/measure"
)

// updateLoop writes new grants into one Lock object, each over the previous one.
type updateLoop struct {
	objects LockObjects
	current *v1alpha1.Lock
	grants  int
}

// NewUpdateLoop returns updates of one Lock object as a contender, which has one client.
func NewUpdateLoop(config *rest.Config) (measure.Contender, error) {
	objects, err := NewLockObjects(config)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: "Lock: update loop", Resource: "locks", Clients: 1, Open: func(context.Context, int) (measure.Locker, error) {
		return &updateLoop{objects: objects}, nil
	}}, nil
}

// Acquire implements [measure.Locker].
func (u *updateLoop) Acquire(ctx context.Context, key string) error {
	u.grants++
	var err error
	next := StampedLock(key+"-loop", OwnerOf(u.grants%2))
	if u.current == nil {
		u.current, err = u.objects.Create(ctx, next, metav1.CreateOptions{})
		return err
	}
	next.UID, next.ResourceVersion = u.current.UID, u.current.ResourceVersion
	u.current, err = u.objects.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// Release implements [measure.Locker].
func (u *updateLoop) Release(context.Context, string) error { return nil }

// Close implements [measure.Locker].
func (u *updateLoop) Close() {
	if u.current != nil {
		_ = u.objects.Delete(context.Background(), u.current.Name, metav1.DeleteOptions{}) // the cluster ends soon
	}
}
