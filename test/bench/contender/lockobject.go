package contender

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/measure"
)

// lockObject only creates and deletes a Lock object.
type lockObject struct {
	objects LockObjects
	owner   string
	make    func(key, owner string) *v1alpha1.Lock
}

// NewLockObject returns bare Lock objects as a contender with an identity. Its objects are complete, or
// the webhook completes them.
func NewLockObject(name string, config *rest.Config, object func(key, owner string) *v1alpha1.Lock) (measure.Contender, error) {
	objects, err := NewLockObjects(config)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: name, Resource: "locks", Open: func(_ context.Context, client int) (measure.Locker, error) {
		return &lockObject{objects: objects, owner: OwnerOf(client), make: object}, nil
	}}, nil
}

// Acquire implements [measure.Locker].
func (o *lockObject) Acquire(ctx context.Context, key string) error {
	_, err := o.objects.Create(ctx, o.make(key, o.owner), metav1.CreateOptions{})
	return err
}

// Release implements [measure.Locker].
func (o *lockObject) Release(ctx context.Context, key string) error {
	name := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key).ObjectName()
	return o.objects.Delete(ctx, name, metav1.DeleteOptions{})
}

// Close implements [measure.Locker].
func (o *lockObject) Close() {}
