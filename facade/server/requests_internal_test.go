package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
)

// TestAResetTakesEffectBeforeItsConnectionEnds has newcomers while all others keep their places.
func TestAResetTakesEffectBeforeItsConnectionEnds(t *testing.T) {
	b := newBounded(t, 100, 100)
	b.requests.maxUnauthenticated = 2
	shared, resets := b.openBusy(honest), &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	for range 2 {
		b.requests.setPending(b.begin(shared, resets), true)
	}
	b.clock.Step(authenticationGrace)
	b.requests.setPending(b.begin(b.open(hostile), nil), true)
	for range 2 {
		b.begin(b.open(hostile), nil)
	}
	if len(resets.deadlines) != 2 {
		t.Errorf("%d of 2 were reset", len(resets.deadlines))
	}
	b.wantClosed("at once", false, shared)
}

// TestARequestThatEndsIsNotAuthenticated has the review of its token end after another took its place.
func TestARequestThatEndsIsNotAuthenticated(t *testing.T) {
	for name, open := range map[string]func(*bounded, string) *connection{"by a reset": (*bounded).openBusy, "with its connection": (*bounded).open} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, 100, 100)
			b.requests.maxUnauthenticated = 1
			ended := b.begin(open(b, honest), &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()})
			b.begin(b.open(hostile), nil)
			b.requests.setPending(ended, true)
			if b.requests.unauthenticated.in[pending].count > 0 {
				t.Error("it has a place again")
			}
			if err := b.requests.authenticate(ended, limits.Caller{}); !errors.Is(err, limits.ErrRunning) {
				t.Errorf("it is authenticated: %v", err)
			}
			b.requests.finish(ended)
			if left := b.requests; left.authenticated != 0 || left.unauthenticated.count != 1 {
				t.Errorf("something is left: %+v", left)
			}
		})
	}
}

func TestARequestThatIsOverIsNotReset(t *testing.T) {
	b := newBounded(t, 100, 100)
	resets := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	begun := b.begin(b.openBusy(honest), resets)
	b.requests.finish(begun)
	begun.reset()
	if len(resets.deadlines) != 0 {
		t.Error("the writer is used after the request")
	}
}

// TestAnAddressWithManyPendingRequestsGivesWay fills the share from two addresses, as many requests with one
// invalid token each do while that is reviewed.
func TestAnAddressWithManyPendingRequestsGivesWay(t *testing.T) {
	b := newBounded(t, 100, 100)
	b.requests.maxUnauthenticated, b.requests.maxUnauthenticatedPerAddress, b.requests.maxPendingPerAddress = 8, 4, 3
	var crowds [2]*connection
	var all [2][]*deadlineRecorder
	for number, from := range []string{hostile, "192.0.2.3:1"} {
		crowds[number] = b.open(from)
		for range 4 {
			recorder := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
			all[number] = append(all[number], recorder)
			b.requests.setPending(b.begin(crowds[number], recorder), true)
		}
	}
	if b.begin(crowds[0], nil) != nil {
		t.Error("another request of the same address was begun")
	}
	of := b.open(honest)
	for range 2 {
		if begun := b.begin(of, nil); begun == nil {
			t.Error("no request of another address was begun")
		} else {
			b.requests.setPending(begun, true)
		}
	}
	if b.begin(of, nil) != nil {
		t.Error("a request was begun in place of one that keeps its place")
	}
	for _, crowd := range all {
		for number, recorder := range crowd {
			if isReset, want := len(recorder.deadlines) > 0, number == 3; isReset != want {
				t.Errorf("request %d was reset: %t", number, isReset)
			}
		}
	}
	b.wantClosed("with their other requests", false, crowds[:]...)
}

// oneToken is an access that accepts one token, and tells of each review.
type oneToken struct{ review func() }

// Authenticate implements [access.Access].
func (a *oneToken) Authenticate(*http.Request) (user.Info, error) {
	a.review()
	return &user.DefaultInfo{Name: "alice"}, nil
}

// Authorize implements [access.Access].
func (*oneToken) Authorize(context.Context, user.Info, authorizationv1.ResourceAttributes) error {
	return nil
}

// serveToken serves a request with a token, and reports whether its caller was authenticated.
func (b *bounded) serveToken(control *access.Control, token string) (isServed bool) {
	defer func() {
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // It is that very value.
			panic(cause)
		}
	}()
	request := httptest.NewRequestWithContext(withConnection(b.t.Context(), b.open(honest)), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+token)
	limitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := Authenticate(r, control)
		isServed = err == nil
	}), control).ServeHTTP(httptest.NewRecorder(), request)
	return isServed
}

func TestARequestIsPendingWhileItsCallerIsAuthenticated(t *testing.T) {
	b := newBounded(t, 100, 100)
	reviews := 0
	control, err := access.New(access.Options{Access: &oneToken{review: func() {
		reviews++
		if b.requests.unauthenticated.in[pending].count != 1 {
			t.Error("it does not keep its place")
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if !b.serveToken(control, "valid") || reviews != 1 {
		t.Errorf("%d reviews", reviews)
	}
}

// TestAKnownCallerIsServedWhileAllPlacesAreTaken has requests of unknown callers, all pending.
func TestAKnownCallerIsServedWhileAllPlacesAreTaken(t *testing.T) {
	b := newBounded(t, 100, 100)
	b.requests.maxUnauthenticated = 2
	control, err := access.New(access.Options{Access: &oneToken{review: func() {}}})
	if err != nil {
		t.Fatal(err)
	}
	if !b.serveToken(control, "known") {
		t.Fatal("it is not served at first")
	}
	of := b.open(hostile)
	for range b.requests.maxUnauthenticated {
		b.requests.setPending(b.begin(of, nil), true)
	}
	if b.serveToken(control, "unknown") {
		t.Error("an unknown caller took the place of another")
	}
	if !b.serveToken(control, "known") {
		t.Error("a known caller is not served")
	}
	for b.requests.unauthenticated.count < endingFactor*b.requests.maxUnauthenticated {
		known := &request{of: of}
		b.requests.beginKnown(known)
		b.requests.setPending(known, true)
	}
	if b.serveToken(control, "known") {
		t.Error("requests of known callers have no bound")
	}
}

// closingBody records whether it was closed.
type closingBody struct {
	io.Reader

	isClosed bool
}

// Close implements [io.Closer].
func (b *closingBody) Close() error {
	b.isClosed = true
	return nil
}

func TestBodiesThatAreNotReadAreNotKept(t *testing.T) {
	for method, isClosedBefore := range map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPost: false} {
		b := newBounded(t, 100, 100)
		body := &closingBody{}
		request := http2Request(t, "/").WithContext(withConnection(t.Context(), b.open(honest)))
		request.Method, request.Body = method, body
		limitRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if body.isClosed != isClosedBefore {
				t.Errorf("%s: the body is closed before the handler: %t", method, body.isClosed)
			}
		}), nil).ServeHTTP(httptest.NewRecorder(), request)
		if !body.isClosed {
			t.Errorf("%s: the body is kept", method)
		}
	}
}
