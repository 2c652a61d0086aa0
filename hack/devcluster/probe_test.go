package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestWaitForOKOutlastsFailures(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	if err := waitForOK(t.Context(), server.Client(), "the server", server.URL); err != nil {
		t.Fatal(err)
	}
	if got := calls.Load(); got != 3 {
		t.Errorf("calls = %d, want 3", got)
	}
}

func TestWaitForReturnsTheCauseOfTheEnd(t *testing.T) {
	cause := errors.New("etcd ended")
	ctx, end := context.WithCancelCause(t.Context())
	err := waitFor(ctx, "anything", func(context.Context) error {
		end(cause)
		return errors.New("connection refused")
	})
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
}

func TestWaitForGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := waitFor(t.Context(), "the server", func(context.Context) error {
			return errors.New("connection refused")
		})
		for _, want := range []string{"the server is not ready after 5m0s", "connection refused"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want one with %q", err, want)
			}
		}
	})
}
