//go:build !race

package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
)

// bytesPerLock bounds what a live lock takes in a process that runs controllers and façade.
const bytesPerLock = 1250

// TestALiveLockTakesLittleMemory measures the caches, indexes, queues and sums of a whole process. With
// MEMORY_PROFILE=FILE it writes a profile of what the locks take.
func TestALiveLockTakesLittleMemory(t *testing.T) {
	const count = 20_000
	api := newStubAPI(t)
	manager := startOperator(t, api, "--components=controller,facade")
	if err := api.show(t.Context(), endOfList); err != nil {
		t.Fatal(err)
	}
	if !manager.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not synced")
	}
	informer, err := lockInformer(manager)
	if err != nil {
		t.Fatal(err)
	}
	store := informer.(toolscache.SharedIndexInformer).GetStore()
	before := settledHeap(t)
	for number := range count {
		if err := api.show(t.Context(), added(t, number)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return len(store.ListKeys()) == count })
	each := (settledHeap(t) - before) / count
	if file := os.Getenv("MEMORY_PROFILE"); file != "" {
		writeHeapProfile(t, file)
	}
	t.Logf("%.0f bytes for each of %d live locks", each, count)
	if opened := api.openWatches(); opened != 1 {
		t.Errorf("the process has opened %d watches of locks, want one that all share", opened)
	}
	if each > bytesPerLock {
		t.Errorf("a live lock takes %.0f bytes, want at most %d", each, bytesPerLock)
	}
}

// settledHeap returns the heap in use once handlers and queues have taken in what they were shown.
func settledHeap(t *testing.T) float64 {
	t.Helper()
	last := heapInUse()
	eventually(t, func() bool {
		before := last
		last = heapInUse()
		return last > before-64<<10 && last < before+64<<10
	})
	return last
}

func writeHeapProfile(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if err := pprof.WriteHeapProfile(file); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
