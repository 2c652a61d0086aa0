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
	"forrst.dev/lock-operator/listener"
)

// TestARequestThatEndsIsNotAuthenticated has the review of its token end after another took its place.
func TestARequestThatEndsIsNotAuthenticated(t *testing.T) {
	for name, open := range map[string]func(*bounded, string) *listener.Conn{"by a reset": (*bounded).openProven, "with its connection": (*bounded).open} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t)
			b.maxUnauthenticated = 1
			ended := b.begin(open(b, honest), &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()})
			b.clock.Step(unauthenticatedGrace)
			b.begin(b.open(hostile), nil)
			if _, err := ended.authenticate(limits.Caller{}); !errors.Is(err, limits.ErrInFlight) {
				t.Errorf("it is authenticated: %v", err)
			}
			ended.finish()
			if b.limiter.Counts().Running != 0 || b.unauthenticated.Len() != 1 {
				t.Errorf("something is left: %+v", b.requests)
			}
		})
	}
}

func TestARequestThatIsOverIsNotReset(t *testing.T) {
	b := newBounded(t)
	resets := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	begun := b.begin(b.openProven(honest), resets)
	begun.finish()
	begun.end()
	if len(resets.deadlines) != 0 {
		t.Error("the writer is used after the request")
	}
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
	request := httptest.NewRequestWithContext(b.contextOf(b.open(honest)), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+token)
	b.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := Authenticate(r, control)
		isServed = err == nil
	}), control).ServeHTTP(httptest.NewRecorder(), request)
	return isServed
}

// TestAKnownCallerIsServedWhileAllPlacesAreTaken has requests of unknown callers, whose tokens are reviewed.
func TestAKnownCallerIsServedWhileAllPlacesAreTaken(t *testing.T) {
	b := newBounded(t)
	b.maxUnauthenticated = 2
	control, err := access.New(access.Options{Access: &oneToken{review: func() {}}})
	if err != nil {
		t.Fatal(err)
	}
	if !b.serveToken(control, "known") {
		t.Fatal("it is not served at first")
	}
	for _, from := range []string{hostile, "192.0.2.3:1"} {
		b.begin(b.open(from), nil)
	}
	if b.serveToken(control, "unknown") {
		t.Error("an unknown caller took the place of another")
	}
	if !b.serveToken(control, "known") {
		t.Error("a known caller is not served")
	}
	b.isKnown = true
	for b.begin(b.open(hostile), nil) != nil {
		if b.unauthenticated.Len() > 2*b.maxUnauthenticated {
			t.Fatal("requests of known callers have no bound")
		}
	}
	if b.serveToken(control, "known") {
		t.Error("requests of known callers have no bound")
	}
}

// TestACallHoldsItsConnection has another connection refused while a caller is served.
func TestACallHoldsItsConnection(t *testing.T) {
	b := newBounded(t)
	b.listener = listener.Limit(b.inner, listener.Options{Max: 1})
	of := b.open(honest)
	control, err := access.New(access.Options{Namespace: "locks"})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(b.contextOf(of), http.MethodGet, "/", http.NoBody)
	b.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := Authenticate(r, control); err != nil {
			t.Error(err)
		}
		if b.limiter.Counts().Running != 1 || b.unauthenticated.Len() != 0 {
			t.Error("the request counts as one without a caller")
		}
		if b.open(hostile) != nil {
			t.Error("another connection finds room")
		}
	}), nil).ServeHTTP(httptest.NewRecorder(), request)
	if b.open(hostile) == nil || !isClosed(of) {
		t.Error("an idle connection makes no room")
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
		b := newBounded(t)
		body := &closingBody{}
		request := http2Request(t, "/").WithContext(b.contextOf(b.open(honest)))
		request.Method, request.Body = method, body
		b.limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if body.isClosed != isClosedBefore {
				t.Errorf("%s: the body is closed before the handler: %t", method, body.isClosed)
			}
		}), nil).ServeHTTP(httptest.NewRecorder(), request)
		if !body.isClosed {
			t.Errorf("%s: the body is kept", method)
		}
	}
}
