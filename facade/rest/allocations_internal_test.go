//go:build !race

package rest

import (
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/facade/server"
)

// discard is a response writer that does nothing.
type discard struct{ io.Writer }

func (discard) Header() http.Header              { return nil }
func (discard) WriteHeader(int)                  {}
func (discard) FlushError() error                { return nil }
func (discard) SetReadDeadline(time.Time) error  { return nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }

// manyStreams returns what sends one change to a hundred streams.
func manyStreams(tb testing.TB) (send func()) {
	tb.Helper()
	handler := &Handler{config: Config{encoded: newEncodedLocks(), Clock: clock.RealClock{}, ClockSkewAllowance: new(time.Duration)}}
	told := []event{{name: wire.EventRenewed, lock: grantedLock(tb, "billing:report")}}
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	streams := make([]*eventStream, 100)
	for i := range streams {
		streams[i] = &eventStream{eventWriter: newEventWriter(&call{Handler: handler, Call: server.Call{Request: request, Writer: discard{io.Discard}}})}
	}
	return func() {
		for i := range handler.config.encoded.recent {
			handler.config.encoded.recent[i].Store(nil) // Each change is a new object.
		}
		for _, each := range streams {
			if err := each.sendEvents(told); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func TestAllocationsOfAnEventOfManyStreams(t *testing.T) {
	const limit = 2 // for each stream; the encoded lock is the same for all.
	if allocations := testing.AllocsPerRun(10, manyStreams(t)); allocations > limit*100 {
		t.Errorf("%g allocations, want at most %d", allocations, limit*100)
	}
}
