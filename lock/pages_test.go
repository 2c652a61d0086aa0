package lock_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// A prefix is normalised once, not for each lock that it is compared with.
func TestAPrefixIsNormalisedOnce(t *testing.T) {
	prefix := strings.Repeat("e\u0301", 100)
	one := []v1alpha1.Lock{{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Spec: v1alpha1.LockSpec{Key: "k"}}}
	many := make([]v1alpha1.Lock, 1000)
	for i := range many {
		many[i] = one[0]
	}
	allocations := func(locks []v1alpha1.Lock) float64 {
		return testing.AllocsPerRun(10, func() { _, _ = lock.PageOf(locks, lock.PageRequest{Limit: 1, Prefix: prefix}) })
	}
	if ofOne, ofMany := allocations(one), allocations(many); ofMany > ofOne {
		t.Errorf("%v allocations for many locks, %v for one", ofMany, ofOne)
	}
	wanted := []v1alpha1.Lock{{ObjectMeta: metav1.ObjectMeta{Name: "k"}, Spec: v1alpha1.LockSpec{Key: strings.Repeat("é", 101)}}}
	if page, err := lock.PageOf(wanted, lock.PageRequest{Limit: 1, Prefix: prefix}); err != nil || len(page.Locks) != 1 {
		t.Errorf("found %d, %v", len(page.Locks), err)
	}
}
