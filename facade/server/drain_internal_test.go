package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineRecorder records the deadlines for writing.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(deadline time.Time) error {
	d.deadlines = append(d.deadlines, deadline)
	return nil
}

func http2Request(t *testing.T, path string) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	request.Proto, request.ProtoMajor, request.ProtoMinor = "HTTP/2.0", 2, 0
	return request
}

func TestOnlyACallIsFreedOfTheTimeoutForWriting(t *testing.T) {
	served, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	handlers := (&activity{}).counting(served)
	for _, path := range []string{"/healthz", "/readyz", "/nothing"} {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		handlers.ServeHTTP(w, http2Request(t, path))
		if len(w.deadlines) > 0 {
			t.Errorf("%s: the timeout for writing is replaced by %v", path, w.deadlines)
		}
	}
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	BeginCall(w, http2Request(t, "/forrst"))
	if len(w.deadlines) != 1 || !w.deadlines[0].IsZero() {
		t.Errorf("a call has the deadlines %v, want none", w.deadlines)
	}
}
