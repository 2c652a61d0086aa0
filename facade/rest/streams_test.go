package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// open begins streams of a caller without a connection, and returns when they wait for changes.
func (f *fixture) open(ctx context.Context, ended *sync.WaitGroup, count int, user string) {
	f.t.Helper()
	before := f.Limiter().Counts().Waiting
	for range count {
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, allLocks+"?watch=true", http.NoBody)
		request.Header.Set("User", user)
		ended.Go(func() { f.ServeHTTP(httptest.NewRecorder(), request) })
	}
	for f.Limiter().Counts().Waiting < before+count {
		runtime.Gosched()
	}
}

// Streams of namespaces have a limit of their own. Those of one lock do not count.
func TestTheLimitsOfStreams(t *testing.T) {
	f := newFixture(t)
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	refused := func(user string, status int, problem string) {
		t.Helper()
		got := f.do(http.MethodGet, allLocks+"?watch=true", "", "User", user).want(status, problem)
		if got.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After: %s", got.header.Get("Retry-After"))
		}
	}
	const ofCaller = limits.MaxStreams / limits.DefaultShares
	f.open(ctx, &ended, ofCaller, "caller0")
	refused("caller0", http.StatusTooManyRequests, "too-many-calls")
	f.watch(report+"?watch=true", "User", "caller0").wantSync("0")
	for i := 1; i < limits.DefaultShares; i++ {
		f.open(ctx, &ended, ofCaller, fmt.Sprintf("caller%d", i))
	}
	refused("one more caller", http.StatusServiceUnavailable, "unavailable")
	cancel()
	ended.Wait()
	f.watch(allLocks+"?watch=true", "User", "caller0").wantSync("0")
}

// scripted shows what a test chooses.
type scripted struct {
	lock.Backend
	stream func(ctx context.Context, key v1alpha1.FullKey) lock.Stream
}

func (s *scripted) Stream(ctx context.Context, _ string, key v1alpha1.FullKey) (lock.Stream, error) {
	return s.stream(ctx, key), nil
}

// The whole state is asked for once, however long the replica is behind.
func TestTheStateOfANamespaceIsBuiltOnce(t *testing.T) {
	behind, states := 20, 0
	streams := &scripted{stream: func(_ context.Context, key v1alpha1.FullKey) lock.Stream {
		if key == "" {
			states++
		}
		behind--
		if behind > 0 {
			return lock.Stream{Version: "1"}
		}
		return lock.Stream{Version: "2", Changes: make(chan lock.Change)}
	}}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks = streams })
	opened := make(chan *source)
	go func() { opened <- f.watch(allLocks+"?watch=true", "Last-Event-ID", "2") }()
	for {
		select {
		case s := <-opened:
			s.wantSync("2")
			if states != 1 {
				t.Errorf("the state was asked for %d times", states)
			}
			return
		default:
			pass(f.clock)
		}
	}
}

// The changes of a stream end with its context, too. That is no reason to begin again.
func TestAStreamWhoseCallerHasGoneDoesNotBeginAgain(t *testing.T) {
	for range 30 { // Which end is seen first is left to chance.
		begun := 0
		ctx, cancel := context.WithCancel(t.Context())
		streams := &scripted{stream: func(waiting context.Context, _ v1alpha1.FullKey) lock.Stream {
			begun++
			cancel()
			<-waiting.Done()
			changes := make(chan lock.Change)
			close(changes)
			return lock.Stream{Version: "1", Changes: changes}
		}}
		f := newFixture(t, func(s *testfacade.Settings) { s.Locks = streams })
		f.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, allLocks+"?watch=true", http.NoBody))
		if begun != 1 {
			t.Fatalf("begun %d times", begun)
		}
	}
}

// A list that comes after an outage shows that a lock was deleted, but not when: what it has is an old
// version. A client that connects again with it would be shown what it knows.
func TestIDsDoNotGoBackwards(t *testing.T) {
	memory := buildFixture(settings())
	memory.holdDirectlyFor(t, "billing:report")
	held := memory.locks.All()[0]
	at := func(version string) *v1alpha1.Lock {
		shown := held.DeepCopy()
		shown.ResourceVersion = version
		return shown
	}
	changes := make(chan lock.Change, 3)
	streams := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
		return lock.Stream{Version: "10", Changes: changes}
	}}
	f := newFixture(t, func(s *testfacade.Settings) { s.Locks, s.Clock = streams, memory.clock })
	s := f.watch(allLocks + "?watch=true")
	s.wantSync("10")
	changes <- lock.Change{Lock: at("12")}
	s.want("acquired", "12")
	changes <- lock.Change{Lock: at("9"), IsGone: true}
	s.want("released", "")
	changes <- lock.Change{Lock: at("13")}
	s.want("acquired", "13")
}

// holdDirectlyFor is holdDirectly of a fixture that has no test.
func (f *fixture) holdDirectlyFor(t *testing.T, key string) {
	t.Helper()
	f.t = t
	f.holdDirectly(key, "", "alice", time.Hour)
}

// recordedPieces remembers the largest piece that was written at once.
type recordedPieces struct {
	*httptest.ResponseRecorder
	largest int
	synced  func()
}

func (p *recordedPieces) Write(piece []byte) (int, error) {
	p.largest = max(p.largest, len(piece))
	count, err := p.ResponseRecorder.Write(piece)
	if bytes.HasSuffix(piece, []byte("]}\n\n")) {
		p.synced()
	}
	return count, err
}

// A sync of a large namespace is not kept in whole for each stream.
func TestASyncIsWrittenInPieces(t *testing.T) {
	f := newFixture(t)
	for i := range 500 {
		f.holdDirectly(fmt.Sprintf("k%03d", i), "", "alice", time.Hour)
	}
	ctx, cancel := context.WithCancel(t.Context())
	written := &recordedPieces{ResponseRecorder: httptest.NewRecorder(), synced: cancel}
	f.ServeHTTP(written, httptest.NewRequestWithContext(ctx, http.MethodGet, allLocks+"?watch=true", http.NoBody))
	if count := strings.Count(written.Body.String(), `"key"`); count != 500 || written.largest > 8<<10 {
		t.Errorf("%d locks in pieces of up to %d bytes", count, written.largest)
	}
}

// A holder may end or renew its lock just before the expireTime, of which the watch tells just after. Until others may end
// the lock, it is the holder's doing, as the answer to the holder says.
func TestWhatArrivesAfterTheExpiryIsToldAsItHappened(t *testing.T) {
	const ttl, allowance = 150 * time.Millisecond, time.Second
	renewed := func(held *v1alpha1.Lock, at time.Time) *v1alpha1.Lock {
		later := held.DeepCopy()
		later.ResourceVersion = "12"
		later.Spec.RenewTime, later.Spec.ExpireTime = new(v1alpha1.NewTimestamp(at)), new(v1alpha1.NewTimestamp(at.Add(ttl)))
		return later
	}
	for name, test := range map[string]struct {
		change func(held *v1alpha1.Lock, at time.Time) lock.Change
		after  time.Duration
		want   string
	}{
		"a release":                     {func(held *v1alpha1.Lock, _ time.Time) lock.Change { return lock.Change{Lock: held, IsGone: true} }, 5 * time.Millisecond, "released"},
		"a reaper whose clock is ahead": {func(held *v1alpha1.Lock, _ time.Time) lock.Change { return lock.Change{Lock: held, IsGone: true} }, 600 * time.Millisecond, "expired"},
		"a renewal":                     {func(held *v1alpha1.Lock, at time.Time) lock.Change { return lock.Change{Lock: renewed(held, at)} }, 5 * time.Millisecond, "renewed"},
		"nothing":                       {nil, 5 * time.Millisecond, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			streams, changes := make(chan chan<- lock.Change, 2), []chan<- lock.Change{}
			var present []*v1alpha1.Lock
			backend := &scripted{stream: func(context.Context, v1alpha1.FullKey) lock.Stream {
				changes := make(chan lock.Change)
				streams <- changes
				return lock.Stream{Present: slices.Clone(present), Version: "11", Changes: changes}
			}}
			f := newFixture(t, func(s *testfacade.Settings) { s.Locks, s.ClockSkewAllowance = backend, allowance })
			acquired := f.clock.Now()
			held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "k", ResourceVersion: "11"}, Spec: v1alpha1.LockSpec{
				Key: "k", Owner: "token", AcquireTime: new(v1alpha1.NewTimestamp(acquired)), RenewTime: new(v1alpha1.NewTimestamp(acquired)),
				ExpireTime: new(v1alpha1.NewTimestamp(acquired.Add(ttl))),
			}}
			present = []*v1alpha1.Lock{held}
			events, page := f.watch(allLocks+"?watch=true"), f.watch(feed)
			if name, _, _ := events.next(); name != "sync" {
				t.Fatal(name)
			}
			told[wire.Snapshot](page, "sync")
			changes = append(changes, <-streams, <-streams)
			f.clock.Step(ttl + test.after)
			if test.change != nil {
				for _, each := range changes {
					each <- test.change(held, acquired.Add(ttl-12*time.Millisecond))
				}
			} else {
				stop := f.keepStepping()
				defer stop()
			}
			got, _ := events.nextNamed()
			var onPage []wire.Change
			if _, data := page.nextNamed(); json.Unmarshal([]byte(data), &struct{ Changes *[]wire.Change }{&onPage}) != nil {
				t.Error(data)
			}
			if got != test.want || len(onPage) != 1 || onPage[0].Event != test.want {
				t.Errorf("told %s and %+v, want %s", got, onPage, test.want)
			}
		})
	}
}

// That a lock has expired is told when others may end it.
func TestAnExpiryIsToldWhenOthersMayEndTheLock(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) { s.ClockSkewAllowance = time.Second })
	f.holdDirectly("a", "", "alice", 50*time.Millisecond)
	s := f.watch(allLocks + "?watch=true")
	s.next()
	for !f.clock.HasWaiters() {
		runtime.Gosched()
	}
	f.clock.Step(1049 * time.Millisecond)
	f.holdDirectly("b", "", "alice", time.Hour)
	if name, _, _ := s.next(); name != "acquired" {
		t.Errorf("told %s before", name)
	}
	stop := f.keepStepping()
	defer stop()
	if name, _ := s.nextNamed(); name != "expired" {
		t.Errorf("told %s", name)
	}
}
