package forrst_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

var lockBody = []byte(envelopeWith(ping, `,"version":"1.0.0","arguments":{}`, locked(`{"key":"sku:X9","ttl":{"value":20,"unit":"second"},"block":{"value":2,"unit":"second"}}`)))

// instantLocks has one lock, which it grants to all callers, and does nothing else.
type instantLocks struct {
	lock.Backend
	granted *v1alpha1.Lock
}

func (l *instantLocks) Acquire(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
	return l.granted, nil
}

func (l *instantLocks) Get(context.Context, string, v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	return l.granted, nil
}

func (l *instantLocks) Release(context.Context, string, v1alpha1.FullKey, lock.Proof) error {
	return nil
}

func grantedWithoutVersion(clock clock.PassiveClock) *v1alpha1.Lock {
	request := rules.Acquisition{Key: "k", Owner: "o", TTL: time.Minute, Holder: "alice"}
	return rules.Grant(namespace, request, rules.DefaultLimits(), clock.Now())
}

// discarding is a response writer that allocates next to nothing.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) SetWriteDeadline(time.Time) error     { return nil }
func (d *discarding) Header() http.Header                  { return d.header }
func (d *discarding) WriteHeader(status int)               { d.status = status }
func (d *discarding) Write(answer []byte) (n int, _ error) { return len(answer), nil }

// lockCall returns what decodes, validates and answers one call with a lock, without
// the network and the locks themselves.
func lockCall(tb testing.TB) func() {
	tb.Helper()
	f := newFixture(tb)
	granted, err := f.locks.Acquire(tb.Context(), namespace, lock.Request{Acquisition: rules.Acquisition{Key: "sku:X9", TTL: 1e9, Holder: "alice"}})
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := testfacade.New(testfacade.Settings{Locks: &instantLocks{granted: granted}, Namespace: namespace})
	if err != nil {
		tb.Fatal(err)
	}
	body := bytes.NewReader(lockBody)
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, forrst.Path, nil)
	request.ContentLength = int64(len(lockBody))
	request.Header.Set("Content-Type", "application/json")
	writer := &discarding{header: http.Header{}}
	return func() {
		body.Reset(lockBody)
		request.Body = io.NopCloser(body)
		handler.ServeHTTP(writer, request)
		if writer.status != http.StatusOK {
			tb.Fatalf("status %d", writer.status)
		}
	}
}
