package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// A stream of a namespace begins under the mutex that each change needs: locks of other namespaces must
// not make that long.
func TestAStreamDoesNotWalkOtherNamespaces(t *testing.T) {
	const many, few = 100_000, 3
	seen := newTestCache()
	for i := range many {
		seen.OnAdd(cached(fmt.Sprintf("other%d", i%10), fmt.Sprintf("k%d", i)), false)
	}
	for i := range few {
		seen.OnAdd(cached("here", fmt.Sprintf("k%d", i)), false)
	}
	shortest := time.Hour
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		since := time.Now()
		begun, err := seen.stream(ctx, types.NamespacedName{Namespace: "here"})
		shortest = min(shortest, time.Since(since))
		cancel()
		if err != nil || len(begun.Present) != few {
			t.Fatalf("%d are present, %v", len(begun.Present), err)
		}
	}
	if shortest > 200*time.Microsecond { // It takes a few; a walk takes a few thousand.
		t.Errorf("the shortest beginning took %v", shortest)
	}
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
