package line

import (
	"slices"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func TestALineAtTwoHomesIsOne(t *testing.T) {
	line := func(namespace, key string, waiting int) lock.Line {
		return lock.Line{Namespace: namespace, Scope: v1alpha1.ScopeGlobal, Key: key, Waiting: waiting}
	}
	got := merged([]lock.Line{line("b", "k", 1), line("a", "k", 2), line("a", "l", 3), line("a", "k", 4)})
	if want := []lock.Line{line("a", "k", 6), line("a", "l", 3), line("b", "k", 1)}; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
