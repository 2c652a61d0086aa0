package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestInvalidTokensOfOneNetworkAreLimited(t *testing.T) {
	asked := 0
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = &fakeAccess{who: func(r *http.Request) (user.Info, error) {
			asked++
			if r.Header.Get("Authorization") == "Bearer valid" {
				return &user.DefaultInfo{Name: "system:serviceaccount:payments:worker"}, nil
			}
			return nil, lock.ErrUnauthenticated
		}}
	})
	post := func(address, credentials string) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(ping, "", "")))
		request.RemoteAddr = address
		request.Header.Set("Authorization", credentials)
		return f.serve(request).status
	}
	if got := post(anAddress, "Bearer valid"); got != 200 {
		t.Fatalf("status %d", got)
	}
	limited := 0
	for i := range 150 {
		if post(anAddress, fmt.Sprintf("Bearer %d", i)) == 429 {
			limited++
		}
	}
	if limited != 50 || asked != 101 {
		t.Errorf("%d were limited, %d reviewed", limited, asked)
	}
	if got := post(anAddress, "Bearer valid"); got != 200 {
		t.Errorf("who was known before got %d", got)
	}
	if got := post(anotherAddress, "Bearer other"); got != 401 {
		t.Errorf("another network got %d", got)
	}
}

func TestACallerWhoseTokenCannotBeReviewedMayTryAgainAlsoDuringAStop(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = &fakeAccess{who: func(*http.Request) (user.Info, error) {
			return nil, errors.New("no answer from the API server")
		}}
	})
	stopped, stop := context.WithCancelCause(t.Context())
	stop(server.ErrStopped)
	for _, ctx := range []context.Context{t.Context(), stopped} {
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(ping, "", "")))
		f.wantProblems(f.serve(request), 503, "UNAVAILABLE")
	}
}

func TestAForeignHolderCannotUseTheOwnerToken(t *testing.T) {
	name := "system:serviceaccount:payments:worker"
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Access = identified(func(*http.Request) string { return name })
	})
	f.post(envelopeWith(ping, "", locked(`{"key":"k","owner":"o","scope":"global","auto_release":false,`+ttl+`}`)))
	release := envelopeWith("forrst.locks.release", arguments(`"key":"k","owner":"o"`), "")
	name = "system:serviceaccount:payments:rival"
	f.wantProblems(f.post(release), 403, "LOCK_OWNERSHIP_MISMATCH")
	f.wantHeld("lock:k")
	name = "system:serviceaccount:payments:worker"
	if got := f.post(release); got.status != 200 {
		t.Error(got.body)
	}
}
