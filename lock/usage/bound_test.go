package usage_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/usage"
)

func named(namespace, name string) *v1alpha1.Lock {
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestANamespaceIsFullWithTheMostThatItMayHave(t *testing.T) {
	bound := usage.NewBound(2)
	want := func(isFull bool, when string) {
		t.Helper()
		if bound.IsFull("a") != isFull {
			t.Errorf("full: %t %s", !isFull, when)
		}
		if bound.IsFull("b") {
			t.Errorf("another namespace is full %s", when)
		}
	}
	want(false, "at the beginning")
	bound.OnAdd(named("a", "1"), true)
	bound.OnAdd(named("b", "1"), true)
	want(false, "with one")
	bound.OnAdd(named("a", "2"), false)
	want(true, "with two")
	bound.OnUpdate(named("a", "2"), named("a", "2"))
	bound.OnDelete(named("a", "2"))
	want(false, "after the end of one")
	bound.OnAdd(named("a", "2"), false)
	bound.OnAdd(named("a", "3"), false)
	bound.OnDelete(cache.DeletedFinalStateUnknown{Key: "a/1"})
	want(true, "with more than two, of which one has ended unseen")
	bound.OnDelete(named("a", "2"))
	bound.OnDelete(named("a", "3"))
	want(false, "at the end")
}

func TestWithoutABoundNoNamespaceIsFull(t *testing.T) {
	var none *usage.Bound
	unlimited := usage.NewBound(0)
	unlimited.OnAdd(named("a", "1"), false)
	if none.IsFull("a") || unlimited.IsFull("a") {
		t.Error("is full")
	}
}

func TestTheFullestNamespaceIsTold(t *testing.T) {
	bound, unlimited := usage.NewBound(4), usage.NewBound(0)
	for _, name := range []string{"1", "2", "3"} {
		bound.OnAdd(named("a", name), false)
		unlimited.OnAdd(named("a", name), false)
	}
	bound.OnAdd(named("b", "1"), false)
	if got := bound.Fullest(); got != 0.75 {
		t.Errorf("%v with 3 of 4", got)
	}
	if got := unlimited.Fullest(); got != 0 {
		t.Errorf("%v without a bound", got)
	}
}
