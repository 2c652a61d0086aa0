//go:build !race

package rest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// instantLocks has one lock, which it grants to all callers, and does nothing else.
type instantLocks struct {
	lock.Backend
	granted *v1alpha1.Lock
}

func (l *instantLocks) Acquire(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
	return l.granted, nil
}

func (l *instantLocks) Release(context.Context, string, v1alpha1.FullKey, lock.Proof) error {
	return nil
}

// discarding is a response writer that allocates next to nothing.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) SetWriteDeadline(time.Time) error     { return nil }
func (d *discarding) FlushError() error                    { return nil }
func (d *discarding) Header() http.Header                  { return d.header }
func (d *discarding) WriteHeader(status int)               { d.status = status }
func (d *discarding) Write(answer []byte) (n int, _ error) { return len(answer), nil }

// exchange returns what reads, validates and answers an acquire and a release, without the network and the
// locks themselves.
func exchange(tb testing.TB) func() {
	tb.Helper()
	granted, err := locktest.New().Acquire(tb.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", TTL: time.Minute}})
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := testfacade.New(testfacade.Settings{Locks: &instantLocks{granted: granted}, Namespace: "payments"})
	if err != nil {
		tb.Fatal(err)
	}
	text := []byte(`{"ttl_seconds":60,"reason":"monthly close"}`)
	body := bytes.NewReader(text)
	acquire := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, report, nil)
	acquire.Header.Set("Content-Type", "application/json")
	release := httptest.NewRequestWithContext(tb.Context(), http.MethodDelete, report, nil)
	release.Header.Set("X-Lock-Token", "lock_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_1_aaaaaaaaaaaaa")
	writer := &discarding{header: http.Header{}}
	return func() {
		body.Reset(text)
		acquire.Body = io.NopCloser(body)
		handler.ServeHTTP(writer, acquire)
		if writer.status != http.StatusCreated {
			tb.Fatalf("status %d", writer.status)
		}
		handler.ServeHTTP(writer, release)
		if writer.status != http.StatusNoContent {
			tb.Fatalf("status %d", writer.status)
		}
	}
}

// The race detector makes allocations of its own, so "make test" runs this once more without it.
func TestAllocationsOfAnAcquireAndRelease(t *testing.T) {
	const limit = 130
	if allocations := testing.AllocsPerRun(100, exchange(t)); allocations > limit {
		t.Errorf("%g allocations, want at most %d", allocations, limit)
	}
}
