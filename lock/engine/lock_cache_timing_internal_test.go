//go:build timing

package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A stream of a namespace begins under the mutex that each change needs: locks of other namespaces must
// not make that long.
func TestTimingAStreamDoesNotWalkOtherNamespaces(t *testing.T) {
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
