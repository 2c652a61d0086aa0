package contender

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/measure"
)

// directCreate creates locks of new keys with one identity and deletes them with the
// operator's, so only the creator differs between contenders.
type directCreate struct {
	objects, operator LockObjects
	owner             string
	make              func(key, owner string) *v1alpha1.Lock
	created           int
	name              string
}

// NewDirectCreate returns creates with one identity and deletes with the operator's as a contender.
func NewDirectCreate(name string, config, operator *rest.Config, object func(key, owner string) *v1alpha1.Lock) (measure.Contender, error) {
	objects, err := NewLockObjects(config)
	if err != nil {
		return measure.Contender{}, err
	}
	deleting, err := NewLockObjects(operator)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: name, Resource: "locks", Open: func(_ context.Context, client int) (measure.Locker, error) {
		return &directCreate{objects: objects, operator: deleting, owner: OwnerOf(client), make: object}, nil
	}}, nil
}

// Acquire implements [measure.Locker].
func (d *directCreate) Acquire(ctx context.Context, key string) error {
	// The webhook's cache may still contain a key that was just released. The webhook would
	// then read it live.
	d.created++
	object := d.make(fmt.Sprintf("%s-%d", key, d.created), d.owner)
	d.name = object.Name
	_, err := d.objects.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Release implements [measure.Locker].
func (d *directCreate) Release(ctx context.Context, _ string) error {
	return d.operator.Delete(ctx, d.name, metav1.DeleteOptions{})
}

// Close implements [measure.Locker].
func (d *directCreate) Close() {}
