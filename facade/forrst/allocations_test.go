//go:build !race

package forrst_test

import "testing"

// The race detector makes allocations of its own, so "make test" runs this once more
// without it.
func TestAllocationsOfALockCall(t *testing.T) {
	const limit = 77
	if allocations := testing.AllocsPerRun(100, lockCall(t)); allocations > limit {
		t.Errorf("%g allocations, want at most %d", allocations, limit)
	}
}
