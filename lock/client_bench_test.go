package lock_test

import (
	"testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// BenchmarkAcquireAndRelease measures what the SDK adds to its backend, which in
// memory takes next to no time itself.
func BenchmarkAcquireAndRelease(b *testing.B) {
	client := lock.NewClient(locktest.New(), "default")
	b.ReportAllocs()
	for b.Loop() {
		held, err := client.Acquire(b.Context(), "billing:report")
		if err != nil {
			b.Fatal(err)
		}
		if err := held.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
