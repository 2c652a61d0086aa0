//go:build !race

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// bytesPerLock bounds what a live lock takes in a process that runs controllers and façade.
const bytesPerLock = 560

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
	store := informer.(toolscache.SharedIndexInformer).GetStore() //nolint:errcheck,forcetypeassert // as the manager makes it
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

// added is the event of a lock that lives for hours.
func added(t *testing.T, number int) string {
	t.Helper()
	lock := rules.Grant("payments", rules.Acquisition{
		Key: fmt.Sprint("billing:report:", number), Owner: fmt.Sprintf("6b0a5f3e-63a5-4f0f-9a53-%012d", number),
		Holder: "system:serviceaccount:payments:worker", TTL: 12 * time.Hour,
	}, rules.Limits{DefaultTTL: time.Hour, MaxTTL: v1alpha1.MaxTTL}, time.Now())
	lock.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Lock"}
	lock.UID, lock.ResourceVersion, lock.Generation = types.UID(fmt.Sprintf("77cf2a0d-7d1e-4b7e-8a7f-%012d", number)), fmt.Sprint(100+number), 1
	lock.CreationTimestamp = metav1.Now()
	lock.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "lock-operator", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(),
		Time: &lock.CreationTimestamp, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{".":{},"f:acquireTime":{},"f:expireTime":{},"f:holder":{},"f:key":{},"f:owner":{},"f:renewTime":{},"f:scope":{},"f:ttl":{}}}`),
	}}
	return fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n", asText(lock))
}
