package rules

import (
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestIsForeign(t *testing.T) {
	for name, test := range map[string]struct {
		user   string
		change func(*v1alpha1.Lock)
		want   bool
	}{
		"a label, by another user":              {"bob", func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" }, true},
		"a label, by the holder":                {"alice", func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" }, false},
		"nothing":                               {"bob", func(*v1alpha1.Lock) {}, false},
		"owner references, by Kubernetes":       {garbageCollectors[0], func(l *v1alpha1.Lock) { l.OwnerReferences = nil }, false},
		"a grant to another user":               {"bob", func(l *v1alpha1.Lock) { l.Spec.AcquireTime, l.Spec.Holder = at(31), "bob" }, false},
		"a label, under the name of the holder": {"Alice", func(l *v1alpha1.Lock) { l.Labels["team"] = "finance" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			old := stored()
			updated := old.DeepCopy()
			test.change(updated)
			if got := change(t, old, updated, test.user).IsForeign(updated); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
