package ui_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// facade is a façade on locks in memory, which can be restarted at its address.
type facade struct {
	*locktest.Backend

	t       *testing.T
	clock   *shiftedClock
	access  *viewers
	address string
	served  *httptest.Server
	server  *server.Server

	mu      sync.Mutex
	waiters []lock.Waiter
	guards  map[string][]v1alpha1.Guard
	// refs name objects that locks are held for, as no API server would let them be named.
	refs map[string]*v1alpha1.HolderReference
	// deleting are keys of locks that are about to be deleted, so that the numbers of their grants are not known.
	deleting map[string]bool
	streams  int
	// isUncounted says that it is not known how many wait, and isStuck that streams tell of no change.
	isUncounted, isStuck bool
	// listed is how many of those that wait are told; 0 means as many as are asked for.
	listed int
	// paths are those that were asked for, with their queries.
	paths []string
}

// shiftedClock is the real clock, or so far behind it. It stamps grants.
type shiftedClock struct {
	clock.RealClock

	behind atomic.Int64
}

// Now implements [clock.PassiveClock].
func (c *shiftedClock) Now() time.Time {
	return c.RealClock.Now().Add(-time.Duration(c.behind.Load()))
}

// Since implements [clock.PassiveClock].
func (c *shiftedClock) Since(then time.Time) time.Duration { return c.Now().Sub(then) }

// viewers are users by their tokens, and what each may not do, as "verb" or "verb namespace"; but what is allowed as
// "verb namespace name". Nil means that callers are not authenticated.
type viewers struct {
	users       map[string]string
	deny, allow map[string][]string
}

// Authenticate implements [access.Access].
func (v *viewers) Authenticate(r *http.Request) (user.Info, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name := v.users[token]
	if name == "" {
		return nil, lock.ErrUnauthenticated
	}
	return &user.DefaultInfo{Name: name}, nil
}

// Authorize implements [access.Access].
func (v *viewers) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	denied := v.deny[who.GetName()]
	if slices.Contains(v.allow[who.GetName()], right.Verb+" "+right.Namespace+" "+right.Name) {
		return nil
	}
	if slices.Contains(denied, right.Verb) || slices.Contains(denied, right.Verb+" "+right.Namespace) {
		return fmt.Errorf("%w: %q lacks the verb %q", lock.ErrForbidden, who.GetName(), right.Verb)
	}
	return nil
}

func newFacade(t *testing.T, access *viewers) *facade {
	t.Helper()
	stamps := &shiftedClock{}
	f := &facade{Backend: locktest.New(locktest.WithClock(stamps)), t: t, clock: stamps, access: access, guards: map[string][]v1alpha1.Guard{}, refs: map[string]*v1alpha1.HolderReference{}, deleting: map[string]bool{}}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *facade) start() {
	f.t.Helper()
	settings := testfacade.Settings{Locks: f, Clock: clock.RealClock{}}
	if f.access == nil {
		settings.Namespace = "shop"
	} else {
		settings.Access = f.access
	}
	served, err := testfacade.New(settings)
	if err != nil {
		f.t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", max(f.address, "127.0.0.1:0"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.address, f.server = listener.Addr().String(), served
	f.served = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.paths = append(f.paths, r.URL.RequestURI())
		f.mu.Unlock()
		served.ServeHTTP(w, r)
	}))
	_ = f.served.Listener.Close()
	f.served.Listener = listener
	f.served.Start()
}

func (f *facade) stop() {
	f.server.Limiter().Drain()
	f.served.CloseClientConnections()
	f.served.Close()
}

func (f *facade) url() string { return "http://" + f.address + "/ui/" }

// requested returns the paths that were asked for.
func (f *facade) requested() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.paths)
}

// Stream implements [lock.Streamer]. It adds what the backend does not know.
func (f *facade) Stream(ctx context.Context, namespace string, key v1alpha1.FullKey) (lock.Stream, error) {
	begun, err := f.Backend.Stream(ctx, namespace, key)
	if err != nil {
		return begun, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams++
	guards, refs, deleting := maps.Clone(f.guards), maps.Clone(f.refs), maps.Clone(f.deleting)
	guarded := func(each *v1alpha1.Lock) *v1alpha1.Lock {
		if guards[each.Spec.Key] == nil && !deleting[each.Spec.Key] {
			return each
		}
		shown := *each
		shown.Spec.Guards = guards[each.Spec.Key]
		if deleting[each.Spec.Key] {
			shown.DeletionTimestamp, shown.Spec.FencingToken = new(metav1.Now()), nil
		}
		if ref := refs[each.Spec.Key]; ref != nil {
			shown.Spec.HolderRef = ref
		}
		return &shown
	}
	for i, each := range begun.Present {
		begun.Present[i] = guarded(each)
	}
	changes := make(chan lock.Change, lock.StreamBuffer)
	from := begun.Changes
	go func() {
		defer close(changes)
		for change := range from {
			f.mu.Lock()
			isStuck := f.isStuck
			f.mu.Unlock()
			if isStuck {
				continue
			}
			change.Lock = guarded(change.Lock)
			select {
			case changes <- change:
			case <-ctx.Done():
			}
		}
	}()
	begun.Changes = changes
	return begun, nil
}

// Waiters implements [lock.LineReader].
func (f *facade) Waiters(_ context.Context, namespace string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for index := range f.waiters {
		each := f.waiters[index]
		if (namespace == "" || each.Namespace == namespace) && (key == "" || each.FullKey() == key) {
			found = append(found, each)
		}
	}
	if f.listed > 0 {
		limit = f.listed
	}
	return found[:min(limit, len(found))], len(found) <= limit, nil
}

// Lines implements [lock.LineCounter].
func (f *facade) Lines(_ context.Context, namespace string, key v1alpha1.FullKey, limit int) (lines []lock.Line, isComplete bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isUncounted {
		return nil, false, lock.ErrUnavailable
	}
	for index := range f.waiters {
		each := &f.waiters[index]
		if namespace != "" && each.Namespace != namespace || key != "" && each.FullKey() != key {
			continue
		}
		line := slices.IndexFunc(lines, func(line lock.Line) bool {
			return line.Namespace == each.Namespace && line.FullKey() == each.FullKey()
		})
		if line < 0 {
			line = len(lines)
			lines = append(lines, lock.Line{Namespace: each.Namespace, Scope: each.Scope, Function: each.Function, Key: each.Key})
		}
		lines[line].Waiting++
	}
	return lines[:min(limit, len(lines))], len(lines) <= limit, nil
}

// wait makes callers wait for a lock, in this order, behind those that do.
func (f *facade) wait(namespace, key string, holders ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := 1
	for index := range f.waiters {
		if f.waiters[index].Namespace == namespace && f.waiters[index].Key == key {
			first++
		}
	}
	for place, holder := range holders {
		f.waiters = append(f.waiters, lock.Waiter{
			Namespace: namespace, Scope: v1alpha1.ScopeGlobal, Key: key, Place: first + place, Holder: holder, Door: "rest",
			Since: time.Now().Add(-time.Duration(len(holders)-place) * 7 * time.Second), Until: time.Now().Add(time.Minute),
		})
	}
}

// leave takes the first callers out of a line.
func (f *facade) leave(key string, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiters = slices.DeleteFunc(f.waiters, func(each lock.Waiter) bool { return each.Key == key && each.Place <= count })
	for index := range f.waiters {
		if f.waiters[index].Key == key {
			f.waiters[index].Place -= count
		}
	}
}

// hold acquires a lock.
func (f *facade) hold(namespace, key, holder string, ttl time.Duration, changes ...func(*rules.Acquisition)) *v1alpha1.Lock {
	f.t.Helper()
	wanted := rules.Acquisition{Key: key, Holder: holder, TTL: ttl}
	for _, change := range changes {
		change(&wanted)
	}
	held, err := f.Acquire(f.t.Context(), namespace, lock.Request{Acquisition: wanted})
	if err != nil {
		f.t.Fatal(err)
	}
	return held
}

// holdFor acquires a lock so long ago that this much of its ttl is left.
func (f *facade) holdFor(left time.Duration, namespace, key, holder string, ttl time.Duration, changes ...func(*rules.Acquisition)) *v1alpha1.Lock {
	f.t.Helper()
	f.clock.behind.Store(int64(ttl - left))
	defer f.clock.behind.Store(0)
	return f.hold(namespace, key, holder, ttl, changes...)
}

func (f *facade) renew(held *v1alpha1.Lock, ttl time.Duration) {
	f.t.Helper()
	if _, err := f.Renew(f.t.Context(), held.Namespace, held.Spec.FullKey(), lock.Proof{Owner: held.Spec.Owner, Holder: held.Spec.Holder}, ttl); err != nil {
		f.t.Fatal(err)
	}
}

func (f *facade) release(held *v1alpha1.Lock) {
	f.t.Helper()
	if err := f.Release(f.t.Context(), held.Namespace, held.Spec.FullKey(), lock.Proof{Owner: held.Spec.Owner, Holder: held.Spec.Holder}); err != nil {
		f.t.Fatal(err)
	}
}

func because(reason string) func(*rules.Acquisition) {
	return func(wanted *rules.Acquisition) { wanted.Reason = reason }
}

func standingFor(kind, name string) func(*rules.Acquisition) {
	return func(wanted *rules.Acquisition) {
		version := "v1"
		if kind == "Job" {
			version = "batch/v1"
		}
		wanted.HolderRef = &v1alpha1.HolderReference{APIVersion: version, Kind: kind, Name: name, UID: "5d0c1f5e-3a52-4c1b-9f7e-0d4a1c7d9e11"}
	}
}
