package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock"
)

// own gives the lock an owner, as its holder may.
func (e *etcd) own() {
	e.mu.Lock()
	defer e.mu.Unlock()
	object := e.objects[name].DeepCopy()
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}}
	e.store(object)
}

// TestOwnersOfAFormerHolder is about a garbage collector that deletes by UID alone: the next holder
// gets an object with another one.
func TestOwnersOfAFormerHolder(t *testing.T) {
	t.Run("whose lock has expired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			engine := start(t, etcd)
			acquire(t, engine, by("a"))
			etcd.own()
			former := etcd.stored(name)
			pass(40 * time.Second)
			etcd.made()
			acquire(t, engine, by("b"))
			if diff := cmp.Diff([]string{"create", "get", "delete", "create"}, etcd.made()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if current := etcd.stored(name); current.UID == former.UID || current.Spec.Owner != "b" {
				t.Errorf("%q holds the object %s after %s", current.Spec.Owner, current.UID, former.UID)
			}
		})
	})
	t.Run("who releases it to a waiter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			engine := start(t, etcd)
			acquire(t, engine, by("a"))
			etcd.own()
			if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
				t.Fatal(err)
			}
			former := etcd.stored(name)
			answers := make(chan answer, 1)
			queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
			release(t, engine, "a")
			if got := <-answers; got.err != nil {
				t.Fatal(got.err)
			}
			if current := etcd.stored(name); current.UID == former.UID || current.Spec.Owner != "b" {
				t.Errorf("%q holds the object %s after %s", current.Spec.Owner, current.UID, former.UID)
			}
		})
	})
}
