package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// floor only creates and deletes a Lock object: no lock on these objects can be quicker.
type floor struct {
	objects lockObjects
	owner   string
	make    func(key, owner string) *v1alpha1.Lock
}

// newFloor returns the floor as a contender with an identity. Its objects are complete, or
// the webhook completes them.
func newFloor(name string, config *rest.Config, object func(key, owner string) *v1alpha1.Lock) (contender, error) {
	objects, err := newLockObjects(config)
	if err != nil {
		return contender{}, err
	}
	return contender{name: name, resource: "locks", open: func(_ context.Context, client int) (locker, error) {
		return &floor{objects: objects, owner: ownerOf(client), make: object}, nil
	}}, nil
}

func (f *floor) acquire(ctx context.Context, key string) error {
	_, err := f.objects.Create(ctx, f.make(key, f.owner), metav1.CreateOptions{})
	return err
}

func (f *floor) release(ctx context.Context, key string) error {
	name := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key).ObjectName()
	return f.objects.Delete(ctx, name, metav1.DeleteOptions{})
}

func (f *floor) close() {}
