//go:build !race

package line_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/rules"
)

// A caller that waits takes little memory: at its replica with the goroutine of its call, and at home without.
func TestMemoryOfWaiters(t *testing.T) {
	const (
		callers = 10_000
		atHome  = 1 << 10
		atEdge  = 24 << 10
		// longest is what one takes at home whose texts are as long as they may be.
		longest = 7 << 10
	)
	perCaller := func(t *testing.T, wait func(all *sync.WaitGroup, r *replicas, i int)) uint64 {
		t.Helper()
		var took uint64
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond)
			replicas.hold(replicas.edges()[0], "first")
			<-time.After(time.Second)
			before := memory()
			var all sync.WaitGroup
			for i := range callers {
				wait(&all, replicas, i)
			}
			<-time.After(time.Second)
			synctest.Wait()
			took = (memory() - before) / callers
			if _, standing := replicas.all[replicas.home()].Open(); standing != callers {
				t.Errorf("%d stand in line", standing)
			}
			for _, at := range replicas.all {
				at.stop()
			}
			all.Wait()
		})
		return took
	}
	home := perCaller(t, func(_ *sync.WaitGroup, r *replicas, i int) {
		line.Enlist(r.edges()[0].Line, r.home(), "default", by(fmt.Sprintf("%036d", i), time.Hour))
	})
	both := perCaller(t, func(all *sync.WaitGroup, r *replicas, i int) {
		all.Go(func() {
			_, _ = r.edges()[0].Acquire(r.t.Context(), "default", by(fmt.Sprintf("%036d", i), time.Hour))
		})
	})
	verbose := perCaller(t, func(_ *sync.WaitGroup, r *replicas, i int) {
		request := by(fmt.Sprintf("%0512d", i), time.Hour)
		request.Reason = strings.Repeat("\U0001F512", rules.MaxReasonLength-5) + fmt.Sprintf("%05d", i)
		request.HolderRef = &v1alpha1.HolderReference{
			APIVersion: fmt.Sprintf("%0317d", i), Kind: fmt.Sprintf("%063d", i), Name: fmt.Sprintf("%0253d", i), UID: types.UID(fmt.Sprintf("%0128d", i)),
		}
		line.Enlist(r.edges()[0].Line, r.home(), "default", request)
	})
	t.Logf("a caller takes %d bytes at home, %d with the longest texts, and %d at its replica and at home", home, verbose, both)
	if verbose > longest+bareQuestion {
		t.Errorf("a caller with long texts takes %d bytes at home", verbose-bareQuestion)
	}
	if home > atHome+bareQuestion {
		t.Errorf("a caller takes %d bytes at home", home-bareQuestion)
	}
	if both > atEdge+atHome {
		t.Errorf("a caller takes %d bytes at both", both)
	}
}

// bareQuestion is what an open question of an edge takes of the heap, at most.
const bareQuestion = 128

// memory is that of live objects and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc + now.StackInuse
}
