package locks_test

import (
	"testing"

	"forrst.dev/lock-operator/cli/locks"
)

func TestWaiters(t *testing.T) {
	for _, test := range []struct {
		known  int
		areAll bool
		want   string
	}{
		{0, true, "0"}, {3, true, "3"}, {3, false, "3+"}, {0, false, "-"},
	} {
		if got := locks.Waiters(test.known, test.areAll); got != test.want {
			t.Errorf("%d, all: %t: got %s, want %s", test.known, test.areAll, got, test.want)
		}
	}
}
