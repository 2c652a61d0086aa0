package engine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func cached(namespace, name string) *v1alpha1.Lock {
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}}
}

func newTestCache() *lockCache {
	return newLockCache(func(types.NamespacedName, lock.Change) {}, func(types.NamespacedName) {})
}

// Namespaces come and go, and must not be remembered for ever.
func TestNamespacesWithoutLocksAreForgotten(t *testing.T) {
	seen := newTestCache()
	seen.OnAdd(cached("a", "k"), false)
	seen.OnAdd(cached("a", "l"), false)
	seen.OnDelete(cached("a", "k"))
	if name := (types.NamespacedName{Namespace: "a", Name: "l"}); seen.get(name) == nil {
		t.Error("another lock was forgotten")
	}
	seen.OnForget(types.NamespacedName{Namespace: "a", Name: "l"})
	seen.OnDelete(cached("b", "k"))
	if len(seen.locks) != 0 {
		t.Errorf("remembered: %v", seen.locks)
	}
}
