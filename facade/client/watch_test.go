package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// serve has a façade with the real clock answer on a port.
func serve(t *testing.T) (*locktest.Backend, *client.Client) {
	t.Helper()
	locks := locktest.New(locktest.WithHolder("alice"))
	handler, err := testfacade.New(testfacade.Settings{Locks: locks, Namespace: namespace, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	asking, err := client.New(server.URL+"/", client.WithWatch())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asking.Close)
	return locks, asking
}

// The caller names no namespace: the answer to the acquire tells its own.
func TestAHolderLearnsOfAForcedReleaseAtOnce(t *testing.T) {
	for _, key := range []string{"k", "deploy:a/b ü", ".", ".."} {
		locks, asking := serve(t)
		held, err := lock.NewClient(asking, "").Acquire(t.Context(), key, lock.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.ForceRelease(t.Context(), namespace, held.Key(), "test"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		select {
		case <-held.Done():
			if !errors.Is(held.Err(), lock.ErrForceReleased) {
				t.Errorf("%q: %v", key, held.Err())
			}
			t.Logf("%q: after %s", key, time.Since(began))
		case <-time.After(30 * time.Second):
			t.Errorf("%q: not within 30 s", key)
		}
		_ = held.Release(t.Context())
	}
}

// streams is a façade whose answers a test writes.
type streams struct {
	t *testing.T
	// opened gets each stream.
	opened chan *told
	// refusals are the statuses of the answers to the next requests.
	refusals []int

	// mu guards requests, those that were made.
	mu       sync.Mutex
	requests []*http.Request
}

// made returns the requests so far.
func (s *streams) made() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// told is a stream.
type told struct {
	*io.PipeWriter

	t       *testing.T
	request *http.Request
}

func (s *streams) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	if len(s.refusals) > 0 {
		status := s.refusals[0]
		s.refusals = s.refusals[1:]
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"text/html"}}, Body: http.NoBody}, nil
	}
	body, writer := io.Pipe()
	context.AfterFunc(request.Context(), func() { _ = body.CloseWithError(request.Context().Err()) })
	s.opened <- &told{writer, s.t, request}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Body: body}, nil
}

// event tells an event; an empty id is left out.
func (s *told) event(name, id, data string) {
	s.t.Helper()
	if id != "" {
		id = "id: " + id + "\n"
	}
	if _, err := fmt.Fprintf(s, "event: %s\n%sdata: %s\n\n", name, id, data); err != nil {
		s.t.Error(err)
	}
}

// grant describes a lock that was acquired in a minute of the hour.
func grant(minute int) string {
	at := fmt.Sprintf("2024-03-15T10:%02d:00Z", minute)
	return fmt.Sprintf(`{"namespace":"default","key":"k","holder":"alice","ttl_seconds":60,"acquired_at":%q,"renewed_at":%q,"expires_at":%q}`, at, at, at)
}

func syncOf(grants ...string) string { return `{"locks":[` + strings.Join(grants, ",") + `]}` }

// follow watches a lock of a façade whose answers the test writes.
func follow(t *testing.T, refusals ...int) (*streams, <-chan lock.Change) {
	t.Helper()
	s := &streams{t: t, opened: make(chan *told, 1), refusals: refusals}
	asking, err := client.New("http://facade.test/base", client.WithHTTPClient(&http.Client{Transport: s}), client.WithWatch())
	if err != nil {
		t.Fatal(err)
	}
	changes, err := asking.Watch(t.Context(), namespace, "lock:k")
	if err != nil {
		t.Fatal(err)
	}
	return s, changes
}

// wantChange waits until nothing moves, and looks at the change that was sent. A negative minute stands for a lock that
// was never held.
func wantChange(t *testing.T, changes <-chan lock.Change, minute int, version string, isGone bool) {
	t.Helper()
	synctest.Wait()
	select {
	case change := <-changes:
		switch {
		case change.IsGone != isGone, (change.Lock == nil) != (minute < 0):
			t.Fatalf("got %+v", change)
		case change.Lock == nil:
			return
		}
		if got := change.Lock; got.Spec.AcquireTime.Minute() != minute || got.ResourceVersion != version || got.Name != v1alpha1.FullKey("lock:k").ObjectName() {
			t.Errorf("got %s, version %s; want minute %d, version %s", got.Spec.AcquireTime, got.ResourceVersion, minute, version)
		}
	default:
		t.Fatal("no change")
	}
}

func wantNoChange(t *testing.T, changes <-chan lock.Change) {
	t.Helper()
	synctest.Wait()
	select {
	case change := <-changes:
		t.Errorf("got %+v", change)
	default:
	}
}

func TestEventsAreChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, changes := follow(t)
		stream := <-s.opened
		if url := stream.request.URL.String(); url != "http://facade.test/base/v1/namespaces/default/locks/k?watch=true" {
			t.Errorf("asked for %s", url)
		}
		stream.event("sync", "5", syncOf())
		wantChange(t, changes, -1, "", true)
		stream.event("acquired", "6", grant(1))
		wantChange(t, changes, 1, "6", false)
		stream.event("renewed", "7", grant(1))
		wantChange(t, changes, 1, "7", false)
		stream.event("handed-off", "8", grant(2))
		wantChange(t, changes, 2, "8", false)
		stream.event("expired", "", grant(2)) // A replica that is behind has missed a renewal.
		wantNoChange(t, changes)
		stream.event("expired", "9", grant(2))
		wantChange(t, changes, 2, "9", true)
		stream.event("acquired", "10", grant(3))
		stream.event("released", "", grant(3)) // A list has shown it.
		wantChange(t, changes, 3, "", true)
		stream.event("sync", "11", syncOf())
		wantNoChange(t, changes)
		stream.event("sync", "12", syncOf(grant(4)))
		wantChange(t, changes, 4, "12", false)
		stream.event("sync", "13", syncOf())
		wantChange(t, changes, 4, "13", true)
	})
}

func TestAStreamThatHasEndedIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, changes := follow(t, http.StatusServiceUnavailable)
		stream := <-s.opened
		stream.event("sync", "5", syncOf(grant(1)))
		wantChange(t, changes, 1, "5", false)
		s.refusals = []int{http.StatusUnauthorized, http.StatusTooManyRequests}
		_ = stream.Close()
		stream = <-s.opened
		if id := stream.request.Header.Get("Last-Event-ID"); id != "5" {
			t.Errorf("Last-Event-ID %q", id)
		}
		stream.event("sync", "4", syncOf()) // of a replica that is behind
		wantNoChange(t, changes)
		stream.event("acquired", "5", grant(1))
		wantChange(t, changes, 1, "5", false)
		_ = stream.Close()
		stream = <-s.opened
		stream.event("sync", "6", syncOf(grant(2)))
		wantChange(t, changes, 2, "6", false)
		_ = stream.Close()
		(<-s.opened).event("sync", "7", syncOf())
		wantChange(t, changes, 2, "7", true)
	})
}

// A connection may be dead without a word.
func TestASilentStreamIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, changes := follow(t)
		stream := <-s.opened
		stream.event("sync", "5", syncOf(grant(1)))
		for range 10 {
			<-time.After(15 * time.Second)
			if _, err := io.WriteString(stream, ": alive\n\n"); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.made()) != 1 {
			t.Fatalf("%d requests", len(s.made()))
		}
		(<-s.opened).event("sync", "6", syncOf())
		wantChange(t, changes, 1, "6", true)
	})
}

// A façade that ends each stream at once is not asked more and more often.
func TestReconnectionsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := follow(t)
		began := time.Now()
		for time.Since(began) < time.Hour {
			stream := <-s.opened
			stream.event("sync", "5", syncOf())
			_ = stream.Close()
		}
		if len(s.made()) > 140 {
			t.Errorf("%d requests in an hour", len(s.made()))
		}
	})
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &streams{t: t, opened: make(chan *told, 1)}
		asking, err := client.New("http://facade.test", client.WithHTTPClient(&http.Client{Transport: s}), client.WithWatch())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		changes, err := asking.Watch(ctx, namespace, "lock:k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if change, isOpen := <-changes; isOpen {
			t.Errorf("got %+v", change)
		}
		if _, err := asking.Watch(ctx, namespace, "lock:k"); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

func TestWhereNothingCanBeWatched(t *testing.T) {
	for name, test := range map[string]struct {
		options   []client.Option
		namespace string
		answer    int
		want      error
	}{
		"the client was not made for it": {namespace: namespace, want: errors.ErrUnsupported},
		"the namespace is not known":     {options: []client.Option{client.WithWatch()}, want: errors.ErrUnsupported},
		"the façade has no such door":    {[]client.Option{client.WithWatch()}, namespace, http.StatusNotFound, errors.ErrUnsupported},
		"the caller lacks the right":     {[]client.Option{client.WithWatch()}, namespace, http.StatusForbidden, lock.ErrForbidden},
		"the caller is not known":        {[]client.Option{client.WithWatch()}, namespace, http.StatusUnauthorized, lock.ErrUnauthenticated},
		"something else answers":         {[]client.Option{client.WithWatch()}, namespace, http.StatusOK, errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			s := &streams{t: t, refusals: []int{test.answer}}
			asking, err := client.New("http://facade.test", append(test.options, client.WithHTTPClient(&http.Client{Transport: s}))...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := asking.Watch(t.Context(), test.namespace, "lock:k"); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestTheStreamHasTheBearerToken(t *testing.T) {
	s := &streams{t: t, refusals: []int{http.StatusForbidden}}
	asking, err := client.New("http://facade.test", client.WithHTTPClient(&http.Client{Transport: s}), client.WithWatch(),
		client.WithBearerToken(func(context.Context) (string, error) { return "secret", nil }))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = asking.Watch(t.Context(), namespace, "lock:k")
	if got := s.made()[0].Header.Get("Authorization"); got != "Bearer secret" {
		t.Errorf("Authorization %q", got)
	}
}
