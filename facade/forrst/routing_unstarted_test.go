package forrst_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/forrst/forward"
)

// longLockOptions are those of a lock that stays, and outlives the timeouts of routes.
const longLockOptions = `{"key":"k","auto_release":false,"ttl":{"value":2,"unit":"minute"}}`

// wantNoLock expects an answer whose caller has nothing to release.
func (f *fixture) wantNoLock(got answer) {
	f.t.Helper()
	if entry := got.entry("urn:cline:forrst:ext:atomic-lock"); entry != `{"key":"k","acquired":false}` || got.fencing != 0 {
		f.t.Errorf("entries in %s", got.body)
	}
	f.wantHeld()
}

func TestFunctionsThatWereNotStartedLeaveNoLock(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	f := newFixtureWith(t, routingTo(t, closed.URL, time.Minute, nil))
	got := f.post(envelopeWith("r.f", "", locked(longLockOptions)))
	f.wantFailure(got, closed.Listener.Addr().String(), forward.Unreachable, "connection refused", false, 0)
	f.wantNoLock(got)
}

func TestFunctionsThatTheServiceDoesNotHaveLeaveNoLock(t *testing.T) {
	for _, code := range []string{"FUNCTION_NOT_FOUND", "VERSION_NOT_FOUND"} {
		f, _ := newRouted(t, says(`"errors":[{"code":"`+code+`","message":"m"}]`))
		f.wantNoLock(f.post(envelopeWith("r.f", "", locked(longLockOptions))))
	}
}

func TestFunctionsThatMayHaveBeenStartedLeaveTheLockToTheCaller(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"an error":    says(`"errors":[{"code":"NOT_FOUND","message":"m"}]`),
		"no envelope": page(http.StatusBadGateway),
		"a break":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		f, _ := newRouted(t, answer)
		if got := f.post(envelopeWith("r.f", "", locked(longLockOptions))); got.fencing == 0 || len(got.Errors) == 0 {
			t.Errorf("%s: %s", name, got.body)
		}
		f.wantHeld(theLock)
	}
}

// unconnected is a network in which no connection is ever made.
type unconnected struct{}

// RoundTrip implements [http.RoundTripper].
func (unconnected) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestCallsThatEndBeforeTheirFunctionsStartLeaveNoLock(t *testing.T) {
	for name, test := range map[string]struct {
		extensions string
		leaves     bool
		status     int
	}{
		"the timeout of the route": {status: 502},
		"a deadline":               {extensions: "," + deadline(`{"value":5}`), status: 504},
		"a caller that goes away":  {leaves: true, status: 499},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureWith(t, routingTo(t, "http://service", time.Minute, unconnected{}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.leaves {
					time.AfterFunc(time.Second, cancel)
				}
				request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/forrst", strings.NewReader(envelopeWith("r.f", "", locked(longLockOptions)+test.extensions)))
				got := f.serve(request)
				if got.status != test.status {
					t.Errorf("got %s", got.body)
				}
				f.wantNoLock(got)
			})
		})
	}
}
