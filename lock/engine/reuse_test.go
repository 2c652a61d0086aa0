package engine_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock/engine"
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
	bubbles(t, "whose lock has expired", func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.own()
		former := etcd.stored(name)
		pass(40 * time.Second)
		etcd.made()
		acquire(t, engine, by("b"))
		etcd.mustMake(t, "create", "get", "delete", "create")
		if current := etcd.stored(name); current.UID == former.UID || current.Spec.Owner != "b" {
			t.Errorf("%q holds the object %s after %s", current.Spec.Owner, current.UID, former.UID)
		}
	})
	bubbles(t, "who releases it to a waiter", func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.own()
		renew(t, engine)
		former := etcd.stored(name)
		answers := queued(t, engine, waiting("b", time.Hour))
		release(t, engine, "a")
		mustGet(t, answers)
		if current := etcd.stored(name); current.UID == former.UID || current.Spec.Owner != "b" {
			t.Errorf("%q holds the object %s after %s", current.Spec.Owner, current.UID, former.UID)
		}
	})
}
