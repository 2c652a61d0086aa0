package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	feed    = "/v1/namespaces/payments/feed"
	allFeed = "/v1/feed"
)

// lined is a backend with waiters.
type lined struct {
	lock.Backend
	lock.Streamer

	waiters []lock.Waiter
}

func (l *lined) Waiters(_ context.Context, _ string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool, err error) {
	for index := range l.waiters {
		if each := &l.waiters[index]; key == "" || each.FullKey() == key {
			found = append(found, *each)
		}
	}
	return found[:min(limit, len(found))], len(found) <= limit, nil
}

func (l *lined) Lines(_ context.Context, _ string, key v1alpha1.FullKey, _ int) (lines []lock.Line, isComplete bool, err error) {
	for index := range l.waiters {
		each := &l.waiters[index]
		if key != "" && each.FullKey() != key {
			continue
		}
		if each.Place == 1 {
			lines = append(lines, lock.Line{Namespace: each.Namespace, Scope: each.Scope, Function: each.Function, Key: each.Key})
		}
		lines[len(lines)-1].Waiting++
	}
	return lines, true, nil
}

// told returns the data of the next event, which must have the name.
func told[T any](s *source, name string) T {
	s.t.Helper()
	got, _, data := s.next()
	var value T
	if got != name || json.Unmarshal([]byte(data), &value) != nil {
		s.t.Fatalf("event %s: %s, want %s", got, data, name)
	}
	return value
}

func TestAFeed(t *testing.T) {
	f := newFixture(t)
	f.holdDirectly("a", "", "alice", time.Hour)
	for _, path := range []string{feed, allFeed} {
		s := f.watch(path)
		begun := told[wire.Snapshot](s, "sync")
		if len(begun.Locks) != 1 || begun.Locks[0].Key != "a" || begun.Now != "2026-03-15T10:30:00.000000Z" {
			t.Errorf("sync: %+v", begun)
		}
		token := f.acquire(report, ofSixty)
		if got := told[wire.Changes](s, "changes").Changes; len(got) != 1 || got[0].Event != "acquired" || got[0].Lock.Key != "billing:report" {
			t.Errorf("changes: %+v", got)
		}
		// What happens soon after is told a moment later. The clock stands still, so the renewal has no other time.
		f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", token).want(http.StatusOK)
		f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
		received := make(chan wire.Changes, 1)
		receive := func() { received <- told[wire.Changes](s, "changes") }
		go receive()
		var events []string
		for len(events) < 2 {
			select {
			case got := <-received:
				for _, each := range got.Changes {
					events = append(events, each.Event)
				}
				if len(events) < 2 {
					go receive()
				}
			default:
				pass(f.clock)
			}
		}
		if !slices.Equal(events, []string{"changed", "released"}) {
			t.Errorf("events: %v", events)
		}
		s.close()
		f.clock.SetTime(time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC))
	}
}

func TestAFeedTellsOfExpiryAndLines(t *testing.T) {
	var waiters lined
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Locks = &waiters
	})
	waiters.Backend, waiters.Streamer = f.locks, f.locks
	waiters.waiters = []lock.Waiter{{Namespace: "payments", Key: "a", Place: 1}, {Namespace: "payments", Key: "a", Place: 2}}
	f.holdDirectly("a", "", "alice", 50*time.Millisecond)
	s := f.watch(feed)
	told[wire.Snapshot](s, "sync")
	lines := told[wire.Lines](s, "lines")
	if want := []wire.Line{{Namespace: "payments", Key: "a", Waiting: 2}}; !slices.Equal(lines.Lines, want) || !lines.IsComplete {
		t.Errorf("lines: %+v", lines)
	}
	for !f.clock.HasWaiters() {
		runtime.Gosched()
	}
	f.clock.Step(50 * time.Millisecond)
	if got := told[wire.Changes](s, "changes").Changes; len(got) != 1 || got[0].Event != "expired" {
		t.Errorf("changes: %+v", got)
	}
}

// A hundred viewers are one stream of the backend, and the locks are encoded once.
func TestViewersShareAFeed(t *testing.T) {
	begun := 0
	changes := make(chan lock.Change)
	streams := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
		begun++
		return lock.Stream{Version: "1", Changes: changes}
	}}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = streams })
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	recorders := make([]*httptest.ResponseRecorder, limits.MaxStreams/limits.DefaultShares)
	for i := range recorders {
		recorders[i] = httptest.NewRecorder()
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, feed, http.NoBody)
		ended.Go(func() { f.ServeHTTP(recorders[i], request) })
	}
	for f.Limiter().Counts().Waiting < len(recorders) {
		runtime.Gosched()
	}
	// One more does not get in: streams have a limit of their own.
	f.do(http.MethodGet, feed, "").want(http.StatusTooManyRequests, "too-many-calls")
	cancel()
	ended.Wait()
	if begun != 1 {
		t.Errorf("%d streams of the backend", begun)
	}
}

func TestAFeedNeedsListAndWatch(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		f := newFixture(t, func(s *testfacade.Settings) { s.Access = &callers{deny: []string{"bob " + verb}} })
		for _, path := range []string{feed, allFeed} {
			problem := f.do(http.MethodGet, path, "", "User", "bob").want(http.StatusForbidden, "forbidden").problem()
			if problem.Right == nil || problem.Right.Verb != verb {
				t.Errorf("%s without %s: %+v", path, verb, problem.Right)
			}
			f.do(http.MethodGet, path, "", "User", "alice").want(http.StatusOK)
		}
		f.do(http.MethodGet, feed+"?prefix=a", "").want(http.StatusBadRequest, "invalid-request")
		f.do(http.MethodGet, feed, "", "User", "nobody").want(http.StatusUnauthorized, "unauthenticated")
	}
}

// withdrawn are callers who have no rights once there is a refusal.
type withdrawn struct {
	callers

	refusal atomic.Pointer[error]
	asked   atomic.Int64
}

func (w *withdrawn) fail(refusal error) { w.refusal.Store(&refusal) }

func (w *withdrawn) Authorize(ctx context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	w.asked.Add(1)
	if refusal := w.refusal.Load(); refusal != nil {
		return *refusal
	}
	return w.callers.Authorize(ctx, who, right)
}

func TestAFeedEndsWithTheRightToSeeIt(t *testing.T) { testAStreamEnds(t, feed) }

func TestAWatchEndsWithTheRightToIt(t *testing.T) {
	t.Run("of a lock", func(t *testing.T) { testAStreamEnds(t, report+"?watch=true") })
	t.Run("of a namespace", func(t *testing.T) { testAStreamEnds(t, allLocks+"?watch=true") })
}

func testAStreamEnds(t *testing.T, path string) {
	t.Helper()
	for name, refusal := range map[string]error{
		"withdrawn": lock.ErrForbidden,
		// Or else a caller goes on by asking about so many rights that no review is left for this one.
		"not known by the caller's own doing": limits.ErrCallerInFlight,
	} {
		t.Run(name, func(t *testing.T) { testAStreamEndsBy(t, path, refusal) })
	}
}

func testAStreamEndsBy(t *testing.T, path string, refusal error) {
	t.Helper()
	access := &withdrawn{}
	f := newFixture(t, func(s *testfacade.Settings) { s.Access = access })
	s := f.watch(path)
	told[wire.Snapshot](s, "sync")
	var ended atomic.Bool
	go func() {
		for s.scanner.Scan() { // Only its end counts.
		}
		ended.Store(true)
	}()
	// nextReview returns when the rights were asked for once more, or the stream has ended.
	nextReview := func() {
		t.Helper()
		asked := access.asked.Load()
		f.clock.Step(time.Minute)
		for deadline := time.Now().Add(20 * time.Second); access.asked.Load() == asked && !ended.Load(); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("the right to the stream is not asked about again")
			}
		}
	}
	access.fail(lock.ErrUnavailable)
	for range 3 {
		nextReview()
	}
	if ended.Load() {
		t.Error("the stream ended when the API server did not answer")
	}
	access.fail(refusal)
	nextReview()
	for deadline := time.Now().Add(20 * time.Second); !ended.Load(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the stream goes on")
		}
	}
}

// Of a busy stream there is always more to tell. Its end, and the review of the right to it, come first all the same.
func TestABusyStreamEndsInTime(t *testing.T) {
	for _, path := range []string{feed, allLocks + "?watch=true"} {
		for name, after := range map[string]struct {
			time    time.Duration
			refusal error
		}{"review": {time.Minute, lock.ErrForbidden}, "end": {30 * time.Minute, nil}} {
			t.Run(name+" of "+path, func(t *testing.T) {
				for range 12 { // Without an order, chance may choose the right one.
					testABusyStream(t, path, after.time, after.refusal)
				}
			})
		}
	}
}

// testABusyStream fails if a stream tells of changes after a time at which it has to end.
func testABusyStream(t *testing.T, path string, after time.Duration, refusal error) {
	t.Helper()
	memory := newFixture(t)
	memory.holdDirectly("a", "", "alice", 24*time.Hour)
	changes := make(chan lock.Change, 10)
	streams := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
		return lock.Stream{Version: "1", Changes: changes}
	}}
	access := &withdrawn{}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks, s.Access = streams, access })
	writer := &blockedWriter{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.ServeHTTP(writer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
	}()
	<-writer.begun
	for version := range 5 {
		shown := memory.locks.All()[0].DeepCopy()
		shown.ResourceVersion = fmt.Sprint(100 + version)
		changes <- lock.Change{Lock: shown}
	}
	if path == feed { // The feed has taken them in, and told of the first.
		for len(changes) > 0 {
			runtime.Gosched()
		}
	}
	if refusal != nil {
		access.fail(refusal)
	}
	f.clock.Step(after)
	close(writer.goOn)
	<-ended
	if told := writer.Body.String(); strings.Contains(told, "event: changes") || strings.Contains(told, "event: acquired") {
		t.Fatalf("it tells %s", told)
	}
}

func TestRights(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		name := v1alpha1.FullKeyOf("a").ObjectName()
		s.Access = &callers{deny: []string{"bob list", "bob force-release"}, allow: []string{"bob force-release " + name}}
	})
	for query, want := range map[string]string{
		"":                              "get watch create prioritize",
		"?namespace=payments":           "get watch create prioritize",
		"?namespace=payments&key=a":     "get watch create prioritize force-release",
		"?namespace=payments&key=other": "get watch create prioritize",
	} {
		got := decode[wire.Rights](f.do(http.MethodGet, "/v1/rights"+query, "", "User", "bob").want(http.StatusOK))
		if got.User != "bob" || !got.IsAuthenticated || strings.Join(got.Verbs, " ") != want {
			t.Errorf("%q: %+v, want %s", query, got, want)
		}
	}
	f.do(http.MethodGet, "/v1/rights?key=a", "").want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodGet, "/v1/rights?namespace=-", "").want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodGet, "/v1/rights", "", "User", "nobody").want(http.StatusUnauthorized, "unauthenticated")
	account := decode[wire.Rights](f.do(http.MethodGet, "/v1/rights", "", "User", "system:serviceaccount:shop:web"))
	if account.OwnNamespace != "shop" {
		t.Errorf("%+v", account)
	}
	open := newFixture(t, withoutIdentities)
	got := decode[wire.Rights](open.do(http.MethodGet, "/v1/rights", "").want(http.StatusOK))
	if got.IsAuthenticated || got.OwnNamespace != "payments" || len(got.Verbs) != 6 {
		t.Errorf("without identities: %+v", got)
	}
	open.do(http.MethodGet, "/v1/rights?namespace=other", "").want(http.StatusNotFound, "namespace-not-served")
}

// A viewer that was away for longer than the batches are kept gets all locks again.
func TestASlowViewerOfAFeed(t *testing.T) {
	changes := make(chan lock.Change)
	streams := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
		return lock.Stream{Version: "1", Changes: changes}
	}}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = streams })
	memory := newFixture(t)
	memory.holdDirectly("a", "", "alice", time.Hour)
	held := memory.locks.All()[0]
	blocked := &blockedWriter{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { f.ServeHTTP(blocked, httptest.NewRequestWithContext(ctx, http.MethodGet, feed, http.NoBody)) })
	<-blocked.begun
	for i := range 600 {
		shown := held.DeepCopy()
		shown.ResourceVersion = fmt.Sprint(100 + i)
		changes <- lock.Change{Lock: shown}
		f.clock.Step(time.Second)
	}
	close(blocked.goOn)
	for blocked.syncs() < 2 {
		f.clock.Step(100 * time.Millisecond)
		runtime.Gosched()
	}
	cancel()
	ended.Wait()
}

// blockedWriter is that of a caller who does not read until told to.
type blockedWriter struct {
	*httptest.ResponseRecorder

	begun, goOn chan struct{}
	once        sync.Once
	mu          sync.Mutex
}

func (w *blockedWriter) Write(text []byte) (int, error) {
	w.once.Do(func() { close(w.begun); <-w.goOn })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseRecorder.Write(text)
}

func (w *blockedWriter) syncs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.Body.String(), "event: sync")
}
