package limits_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
)

const (
	shop     = "system:serviceaccount:shop:cart"
	payments = "system:serviceaccount:payments:worker"
	sibling  = "system:serviceaccount:payments:another"
)

// apiServer answers when it is told to.
type apiServer struct {
	t  *testing.T
	mu sync.Mutex
	// begun are the requests that have arrived, by their paths, in the order in which they came.
	begun []string
	// answers has one of each path.
	answers map[string]chan func() (*http.Response, error)
	client  http.RoundTripper
	clock   *clocktesting.FakePassiveClock
}

func newAPIServer(t *testing.T, perTenant int) *apiServer {
	t.Helper()
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC))
	s := &apiServer{t: t, answers: map[string]chan func() (*http.Response, error){}, clock: now}
	s.client = limits.NewRequests(perTenant, now).RoundTripper(s)
	return s
}

// RoundTrip implements [http.RoundTripper].
func (s *apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	answer := make(chan func() (*http.Response, error))
	s.mu.Lock()
	s.begun = append(s.begun, request.URL.Path[1:])
	s.answers[request.URL.Path[1:]] = answer
	s.mu.Unlock()
	select {
	case answered := <-answer:
		return answered()
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

var errPanic = errors.New("panic")

// send sends a request, and returns its error when it has ended.
func (s *apiServer) send(ctx context.Context, path string) <-chan error {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api/"+strings.ReplaceAll(path, " ", "%20"), strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if recover() != nil {
				ended <- errPanic
			}
		}()
		response, err := s.client.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

func (s *apiServer) sendFor(name, path string) {
	s.t.Helper()
	s.send(limits.ForCaller(s.t.Context(), name), path)
}

func succeed() (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// answer answers a request that has arrived.
func (s *apiServer) answer(path string, with func() (*http.Response, error)) {
	s.t.Helper()
	answer := s.answers[path]
	if answer == nil {
		s.t.Fatalf("%s has not arrived; %q have", path, s.begun)
	}
	answer <- with
	synctest.Wait()
}

func (s *apiServer) wantBegun(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.begun, want) {
		s.t.Fatalf("begun are %q, want %q", s.begun, want)
	}
}

// While others ask, a tenant waits for its own requests alone, and all accounts of a namespace are one tenant: its owner can
// make as many as it likes.
func TestATenantHasFewRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t, 2)
		s.sendFor(shop, "s1")
		s.sendFor(payments, "p1")
		s.sendFor(sibling, "p2")
		s.sendFor(payments, "p3")
		s.sendFor(sibling, "p4")
		s.sendFor("payments", "a person of that name")
		s.wantBegun("s1", "p1", "p2", "a person of that name")
		s.answer("p2", succeed)
		s.answer("p1", succeed)
		s.wantBegun("s1", "p1", "p2", "a person of that name", "p3", "p4")
		for _, path := range []string{"s1", "a person of that name", "p3", "p4"} {
			s.answer(path, succeed)
		}
	})
}

// A tenant that has asked within the last second is likely to ask again.
func TestATenantAloneHasAnyNumberOfRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t, 1)
		for _, path := range []string{"p1", "p2", "p3"} {
			s.sendFor(payments, path)
		}
		s.wantBegun("p1", "p2", "p3")
		s.sendFor(shop, "s1")
		s.answer("s1", succeed)
		for _, path := range []string{"p4", "p5", "p6"} {
			s.sendFor(payments, path)
		}
		for _, path := range []string{"p1", "p2"} {
			s.answer(path, succeed)
		}
		s.wantBegun("p1", "p2", "p3", "s1")
		s.answer("p3", succeed)
		s.wantBegun("p1", "p2", "p3", "s1", "p4")
		s.clock.SetTime(s.clock.Now().Add(time.Second))
		s.sendFor(payments, "p7")
		slices.Sort(s.begun) // Three begin at once.
		s.wantBegun("p1", "p2", "p3", "p4", "p5", "p6", "p7", "s1")
		for _, path := range []string{"p4", "p5", "p6", "p7"} {
			s.answer(path, succeed)
		}
	})
}

// What makes room for others goes before what takes it.
func TestReleasesOfATenantGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t, 1)
		s.sendFor(shop, "s1")
		for _, path := range []string{"p1", "p2"} {
			s.sendFor(payments, path)
		}
		for _, path := range []string{"release 1", "release 2"} {
			s.send(limits.ForRelease(t.Context(), sibling), path)
		}
		s.wantBegun("s1", "p1")
		for _, path := range []string{"p1", "release 1", "release 2", "p2", "s1"} {
			s.answer(path, succeed)
		}
		s.wantBegun("s1", "p1", "release 1", "release 2", "p2")
	})
}

func TestOtherRequestsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t, 1)
		s.sendFor(payments, "p1")
		s.sendFor(shop, "s1")
		s.send(t.Context(), "a watch")
		s.sendFor(user.Anonymous, "anonymous 1")
		s.sendFor(user.Anonymous, "anonymous 2")
		s.wantBegun("p1", "s1", "a watch", "anonymous 1", "anonymous 2")
		for _, path := range slices.Clone(s.begun) {
			s.answer(path, succeed)
		}
		s = newAPIServer(t, 0)
		s.sendFor(shop, "s1")
		s.sendFor(payments, "p1")
		s.sendFor(payments, "p2")
		s.wantBegun("s1", "p1", "p2")
		for _, path := range []string{"s1", "p1", "p2"} {
			s.answer(path, succeed)
		}
	})
}

// However a request ends, the next one begins.
func TestTheNextRequestBegins(t *testing.T) {
	for name, end := range map[string]func(s *apiServer, cancel func()){
		"after an answer": func(s *apiServer, _ func()) { s.answer("p1", succeed) },
		"after an error": func(s *apiServer, _ func()) {
			s.answer("p1", func() (*http.Response, error) { return nil, errors.New("broken") })
		},
		"after a panic":            func(s *apiServer, _ func()) { s.answer("p1", func() (*http.Response, error) { panic("x") }) },
		"when the caller has left": func(_ *apiServer, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer(t, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.sendFor(shop, "s1")
				first := s.send(limits.ForCaller(ctx, payments), "p1")
				s.sendFor(payments, "p2")
				s.wantBegun("s1", "p1")
				end(s, cancel)
				if err := <-first; (err == nil) != (name == "after an answer") {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				s.wantBegun("s1", "p1", "p2")
				s.answer("p2", succeed)
				s.answer("s1", succeed)
			})
		})
	}
}

// A request that is given up before it begins was not sent, which its error says, and leaves its place to others.
func TestARequestThatIsGivenUpBeforeItBeginsWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t, 1)
		s.sendFor(shop, "s1")
		s.sendFor(payments, "p1")
		ctx, cancel := context.WithCancel(t.Context())
		left := s.send(limits.ForCaller(ctx, payments), "p2")
		s.sendFor(payments, "p3")
		cancel()
		if err := <-left; !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v, want the status 429, after which nothing has happened", err)
		}
		s.answer("p1", succeed)
		s.wantBegun("s1", "p1", "p3")
		s.answer("p3", succeed)
		s.answer("s1", succeed)
	})
}
