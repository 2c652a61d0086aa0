package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// source reads a stream as a browser does.
type source struct {
	t       *testing.T
	scanner *bufio.Scanner
	close   func()
}

// watch opens a stream on a real connection.
func (f *fixture) watch(path string, headers ...string) *source {
	f.t.Helper()
	t, _ := f.t.(*testing.T)
	served := httptest.NewServer(f.Server)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, served.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := served.Client().Do(request) //nolint:bodyclose // The source closes it.
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	s := &source{t: t, scanner: bufio.NewScanner(response.Body), close: func() {
		cancel()
		response.Body.Close()
		served.Close()
	}}
	s.scanner.Buffer(nil, 1<<20)
	t.Cleanup(s.close)
	return s
}

// next returns the next event. A comment has no name.
func (s *source) next() (name, id, data string) {
	s.t.Helper()
	for s.scanner.Scan() {
		line := s.scanner.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && (name != "" || data != ""):
			return name, id, data
		case strings.HasPrefix(line, ": "):
			data = value
		case field == "event":
			name = value
		case field == "id":
			id = value
		case field == "data":
			data = value
		}
	}
	s.t.Fatalf("the stream has ended: %v", s.scanner.Err())
	return "", "", ""
}

// nextNamed is next without comments, which come when time was stepped over a heartbeat.
func (s *source) nextNamed() (name, data string) {
	s.t.Helper()
	for name == "" {
		name, _, data = s.next()
	}
	return name, data
}

// want reads events about a lock.
func (s *source) want(name, id string) wire.Lock {
	s.t.Helper()
	gotName, gotID, data := s.next()
	for gotName == "" { // Time was stepped over a heartbeat.
		gotName, gotID, data = s.next()
	}
	if gotName != name || gotID != id {
		s.t.Fatalf("event %s %s, want %s %s: %s", gotName, gotID, name, id, data)
	}
	if err := theContract(s.t).checkSchema("Lock", []byte(data)); err != nil {
		s.t.Error(err)
	}
	var about wire.Lock
	if err := json.Unmarshal([]byte(data), &about); err != nil {
		s.t.Fatal(err)
	}
	return about
}

// wantSync reads the event of what is held.
func (s *source) wantSync(id string, keys ...string) {
	s.t.Helper()
	name, gotID, data := s.next()
	if name != "sync" || gotID != id {
		s.t.Fatalf("event %s %s, want sync %s: %s", name, gotID, id, data)
	}
	if err := theContract(s.t).checkSchema("Snapshot", []byte(data)); err != nil {
		s.t.Error(err)
	}
	var held wire.Locks
	if err := json.Unmarshal([]byte(data), &held); err != nil || strings.Join(keysOf(held), " ") != strings.Join(keys, " ") {
		s.t.Errorf("held are %s, want %q, %v", data, keys, err)
	}
}

// Every way in which a lock changes is an event, for those who watch the lock and for those who watch the
// namespace.
func TestEvents(t *testing.T) {
	f := newFixture(t)
	streams := []*source{f.watch(report + "?watch=true"), f.watch(allLocks + "?watch=true&prefix=billing"), f.watch(allLocks + "?watch=true")}
	for _, s := range streams {
		s.wantSync("0")
	}
	want := func(name, id, holder string) {
		t.Helper()
		for _, s := range streams {
			if got := s.want(name, id); got.Holder != holder || got.Key != "billing:report" || got.LockToken != "" {
				t.Errorf("%s is about %+v", name, got)
			}
		}
	}
	token := f.acquire(report, ofSixty)
	want("acquired", "1", "alice")
	f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", token).want(http.StatusOK)
	f.clock.Step(time.Second)
	f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", token).want(http.StatusOK)
	want("changed", "2", "alice") // The clock stood still, so the times did not change.
	want("renewed", "3", "alice")
	granted := make(chan answer, 1)
	go func() { granted <- f.do(http.MethodPost, report, waiting, "User", "bob") }()
	for f.locks.Waiting("payments", theReport) == 0 {
		runtime.Gosched()
	}
	f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
	bobs := (<-granted).want(http.StatusCreated).lock().LockToken
	want("handed-off", "4", "bob")
	f.do(http.MethodDelete, report, "", "X-Lock-Token", bobs, "User", "bob").want(http.StatusNoContent)
	want("released", "5", "bob")
	f.acquire(report, ofSixty, "User", "carol")
	want("acquired", "6", "carol")
	stop := f.keepStepping()
	want("expired", "", "carol")
	stop()
	f.acquire(report, ofSixty)
	want("acquired", "7", "alice")
	f.do(http.MethodDelete, report+"?force=true&reason=r", "").want(http.StatusNoContent)
	want("released", "8", "alice")
	f.acquire(allLocks+"/other", ofSixty)
	if got := streams[2].want("acquired", "9"); got.Key != "other" {
		t.Errorf("about %+v", got)
	}
	f.acquire(report, ofSixty)
	want("acquired", "10", "alice")
}

func TestAStreamBeginsWithWhatIsHeld(t *testing.T) {
	f := newFixture(t)
	f.acquire(allLocks+"/b", ofSixty)
	f.acquire(allLocks+"/expired", `{"ttl_seconds":1}`)
	f.acquire(allLocks+"/a", ofSixty)
	f.clock.Step(2 * time.Second)
	f.watch(allLocks+"?watch=true").wantSync("3", "a", "b")
	f.watch(allLocks+"/a?watch=true", "Last-Event-ID", "2").wantSync("3", "a")
	f.watch(allLocks + "/expired?watch=true").wantSync("3")
	// A screen counts down by the service's clock.
	if begun := told[wire.Snapshot](f.watch(allLocks+"/a?watch=true"), "sync"); begun.Now != "2026-03-15T10:30:02.000000Z" {
		t.Errorf("sync: %+v", begun)
	}
	for _, wrong := range []string{"x", "", "-1", "18446744073709551616"} {
		for _, path := range []string{report + "?watch=true", report, allLocks} {
			f.do(http.MethodGet, path, "", "Last-Event-ID", wrong).want(http.StatusBadRequest, "invalid-request")
		}
	}
	f.do(http.MethodGet, report+"?watch=true", "", "Last-Event-ID", "1", "Last-Event-ID", "2").want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodHead, report+"?watch=true", "").want(http.StatusBadRequest)
}

// pass steps the clock by 10 ms, and no faster than ten times the real time. A clock that is hours ahead of what waits for it
// ends streams and locks.
func pass(clock interface{ Step(time.Duration) }) {
	clock.Step(10 * time.Millisecond)
	<-time.After(time.Millisecond)
}

// keepStepping lets time pass until it is told to stop: a stream may set its timer after a step.
func (f *fixture) keepStepping() (stop func()) {
	f.clock.Step(time.Minute)
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			pass(f.clock)
		}
	}()
	return func() {
		cancel()
		<-stopped
	}
}

func TestHeartbeats(t *testing.T) {
	f := newFixture(t)
	s := f.watch(report + "?watch=true")
	s.wantSync("0")
	for range 2 {
		f.clock.Step(15 * time.Second)
		if name, _, comment := s.next(); name != "" || comment != "alive" {
			t.Errorf("%s: %s", name, comment)
		}
	}
}

func TestAStreamEndsWithTheServer(t *testing.T) {
	f := newFixture(t)
	s := f.watch(report + "?watch=true")
	s.wantSync("0")
	f.Limiter().Drain()
	if s.scanner.Scan() {
		t.Errorf("another line: %s", s.scanner.Text())
	}
}

func TestAStreamEndsInTime(t *testing.T) {
	f := newFixture(t)
	s := f.watch(report + "?watch=true")
	s.wantSync("0")
	f.clock.Step(30 * time.Minute)
	for s.scanner.Scan() {
		if s.scanner.Text() != "" && s.scanner.Text() != ": alive" {
			t.Errorf("another line: %s", s.scanner.Text())
		}
	}
}

// forgetful closes its first stream, as for a receiver that is too slow.
type forgetful struct {
	lock.Backend
	first bool
}

func (l *forgetful) Stream(ctx context.Context, namespace string, key v1alpha1.FullKey) (lock.Stream, error) {
	streamer, _ := l.Backend.(lock.Streamer)
	begun, err := streamer.Stream(ctx, namespace, key)
	if l.first {
		return begun, err
	}
	l.first = true
	closed := make(chan lock.Change)
	close(closed)
	begun.Changes = closed
	return begun, err
}

func TestASlowReceiverIsToldThePresentState(t *testing.T) {
	memory := buildFixture(settings())
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = &forgetful{Backend: memory.locks} })
	s := f.watch(report + "?watch=true")
	s.wantSync("0")
	s.wantSync("0")
	f.acquire(report, ofSixty)
	s.want("acquired", "1")
}
