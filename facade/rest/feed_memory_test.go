//go:build !race

package rest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// stuckWriter is that of a caller who stops to read after ten megabytes.
type stuckWriter struct {
	*httptest.ResponseRecorder

	begun, goOn chan struct{}
	once        sync.Once
	size        int
}

func (w *stuckWriter) Write(text []byte) (int, error) {
	if w.size += len(text); w.size > 10<<20 {
		w.once.Do(func() { close(w.begun) })
		<-w.goOn
		runtime.KeepAlive(text)
	}
	return len(text), nil
}

// countingWriter is that of a caller who reads everything.
type countingWriter struct {
	*httptest.ResponseRecorder

	syncs, batches atomic.Int64
}

func (w *countingWriter) Write(text []byte) (int, error) {
	switch {
	case bytes.HasPrefix(text, []byte("event: sync")):
		w.syncs.Add(1)
	case bytes.HasPrefix(text, []byte("event: changes")):
		w.batches.Add(1)
	}
	return len(text), nil
}

// Viewers that do not read, each of which was begun with another state, keep no text of theirs.
func TestSlowViewersOfAFeedKeepLittle(t *testing.T) {
	const count, viewers = 2000, 9
	memory := newFixture(t)
	memory.holdDirectly("a", "", "alice", time.Hour)
	held := memory.locks.All()[0]
	present := make([]*v1alpha1.Lock, 0, count)
	for i := range count {
		each := held.DeepCopy()
		each.Name = fmt.Sprint("l", i)
		each.Spec.Key = fmt.Sprintf("%08d", i) + strings.Repeat("<", 500) // Six bytes each in JSON.
		each.Spec.Reason = strings.Repeat("<", 1024)
		present = append(present, each)
	}
	changes := make(chan lock.Change)
	streams := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
		return lock.Stream{Version: "1", Changes: changes, Present: present}
	}}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = streams })
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	follow := func(w http.ResponseWriter) {
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, feed, http.NoBody)
		ended.Go(func() { f.ServeHTTP(w, request) })
	}
	goOn := make(chan struct{})
	defer ended.Wait()
	defer cancel()
	defer close(goOn)
	reader := &countingWriter{ResponseRecorder: httptest.NewRecorder()}
	follow(reader)
	for reader.syncs.Load() == 0 {
		runtime.Gosched()
	}
	change := func(version int) {
		shown := present[0].DeepCopy()
		shown.ResourceVersion = fmt.Sprint(version)
		seen := reader.batches.Load()
		changes <- lock.Change{Lock: shown}
		for reader.batches.Load() == seen {
			f.clock.Step(time.Millisecond)
			runtime.Gosched()
		}
	}
	change(100)
	before := heapInUse()
	for viewer := range viewers {
		stuck := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: goOn}
		follow(stuck)
		<-stuck.begun
		for i := range 34 { // After so many the next viewer gets another snapshot.
			change(101 + 34*viewer + i)
		}
	}
	grown := heapInUse() - before
	t.Logf("%d viewers that do not read keep %.1f MiB", viewers, grown/(1<<20))
	// The state of 2,000 locks is 18 MiB of text.
	if most := float64(viewers*rest.MaxViewerBytes + 4<<20); grown > most {
		t.Errorf("that is more than %.1f MiB", most/(1<<20))
	}
	runtime.KeepAlive(present)
}

func heapInUse() float64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
