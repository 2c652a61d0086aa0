package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// updateLoop writes new grants into one Lock object, each over the previous one. No
// hand-off in one write can be quicker.
type updateLoop struct {
	objects lockObjects
	current *v1alpha1.Lock
	grants  int
}

func newUpdateLoop(config *rest.Config) (contender, error) {
	objects, err := newLockObjects(config)
	if err != nil {
		return contender{}, err
	}
	return contender{name: "bare update loop", resource: "locks", clients: 1, open: func(context.Context, int) (locker, error) {
		return &updateLoop{objects: objects}, nil
	}}, nil
}

func (u *updateLoop) acquire(ctx context.Context, key string) error {
	u.grants++
	var err error
	next := stampedLock(key+"-loop", ownerOf(u.grants%2))
	if u.current == nil {
		u.current, err = u.objects.Create(ctx, next, metav1.CreateOptions{})
		return err
	}
	next.UID, next.ResourceVersion = u.current.UID, u.current.ResourceVersion
	u.current, err = u.objects.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

func (u *updateLoop) release(context.Context, string) error { return nil }

func (u *updateLoop) close() {
	if u.current != nil {
		_ = u.objects.Delete(context.Background(), u.current.Name, metav1.DeleteOptions{}) // the cluster ends soon
	}
}
