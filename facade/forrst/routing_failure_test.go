package forrst_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst/forward"
)

// hijack takes the connection from the server.
func hijack(t *testing.T, w http.ResponseWriter) *net.TCPConn {
	t.Helper()
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	return connection.(*net.TCPConn)
}

// reset ends a connection without the usual farewell.
func reset(t *testing.T, connection *net.TCPConn) {
	t.Helper()
	if err := connection.SetLinger(0); err != nil {
		t.Error(err)
	}
	hangUp(t, connection)
}

func hangUp(t *testing.T, connection *net.TCPConn) {
	t.Helper()
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
}

func page(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, "<html>sorry</html>")
	}
}

// failures are all ways in which a service fails to answer.
var failures = map[string]struct {
	answer func(t *testing.T, w http.ResponseWriter, r *http.Request)
	kind   forward.Kind
	reason string
	// mayRun says that the service has not said that it is done.
	mayRun bool
	status int
}{
	"the connection is reset": {
		answer: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			t.Helper()
			reset(t, hijack(t, w))
		},
		kind: forward.Disconnected, reason: "reset", mayRun: true,
	},
	"the connection is closed": {
		answer: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			t.Helper()
			hangUp(t, hijack(t, w))
		},
		kind: forward.Disconnected, reason: "closed", mayRun: true,
	},
	"the handler panics": {
		answer: func(*testing.T, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		kind:   forward.Disconnected, reason: "closed", mayRun: true,
	},
	"half an answer": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"protocol":`)
		},
		kind: forward.Disconnected, reason: "closed", mayRun: true,
	},
	"half an answer, then a reset": {
		answer: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			t.Helper()
			connection := hijack(t, w)
			fmt.Fprint(connection, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			reset(t, connection)
		},
		kind: forward.Disconnected, mayRun: true,
	},
	"no answer": {
		answer: func(_ *testing.T, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		kind:   forward.TimedOut, reason: "no answer within the timeout",
	},
	"an answer that does not end": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"protocol":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		kind: forward.TimedOut,
	},
	"no HTTP": {
		answer: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			t.Helper()
			connection := hijack(t, w)
			fmt.Fprint(connection, "SSH-2.0-OpenSSH_9.6\r\n")
			hangUp(t, connection)
		},
		kind: forward.Disconnected, mayRun: true,
	},
	"no JSON": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { page(200)(w, r) },
		kind:   forward.NoEnvelope, status: 200,
	},
	"nothing at all": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		kind:   forward.NoEnvelope, status: 204,
	},
	"JSON without an envelope": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"result":1}`) },
		kind:   forward.NoEnvelope, status: 200,
	},
	"an envelope with a wrong member": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { says(`"errors":7`)(w, r) },
		kind:   forward.NoEnvelope, status: 200,
	},
	"an envelope without a result": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { says(`"meta":{}`)(w, r) },
		kind:   forward.NoEnvelope, status: 200,
	},
	"an envelope with errors that are none": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { says(`"result":null,"errors":[]`)(w, r) },
		kind:   forward.NoEnvelope, status: 200,
	},
	"an envelope with a result and errors": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) {
			says(`"result":1,"errors":[{"code":"NOT_FOUND","message":"m"}]`)(w, r)
		},
		kind: forward.NoEnvelope, status: 200,
	},
	"an internal error without an envelope": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { page(500)(w, r) },
		kind:   forward.NoEnvelope, reason: "HTTP status 500", status: 500,
	},
	"a bad gateway": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { page(502)(w, r) },
		kind:   forward.NoEnvelope, status: 502,
	},
	"a gateway that has waited for long enough": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) { page(504)(w, r) },
		kind:   forward.NoEnvelope, status: 504, mayRun: true,
	},
	"a redirect": {
		answer: func(_ *testing.T, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
		kind: forward.NoEnvelope, status: 307,
	},
	"too much": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			_, _ = io.CopyN(w, digits{}, forward.MaxAnswerBytes+1)
		},
		kind: forward.TooLarge, status: 200,
	},
	"too much, as announced": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(forward.MaxAnswerBytes+1))
		},
		kind: forward.TooLarge, status: 200,
	},
	"an answer to another call": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-2","result":1}`)
		},
		kind: forward.WrongID, status: 200,
	},
	"a result without an id": {
		answer: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"result":1}`)
		},
		kind: forward.WrongID, status: 200,
	},
}

// digits is an endless text.
type digits struct{}

func (digits) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// wantFailure expects a failure of a service.
func (f *fixture) wantFailure(got answer, host string, kind forward.Kind, reason string, mayRun bool, status int) {
	f.t.Helper()
	f.wantProblems(got, 502, "DEPENDENCY_ERROR")
	var details struct {
		Dependency string       `json:"dependency"`
		Error      string       `json:"dependency_error"`
		Kind       forward.Kind `json:"kind"`
		Status     int          `json:"status"`
		MayRun     bool         `json:"may_still_run"`
	}
	if err := json.Unmarshal(got.Errors[0].Details, &details); err != nil {
		f.t.Fatal(err)
	}
	if details.Dependency != host || details.Kind != kind || details.MayRun != mayRun || details.Status != status ||
		!strings.Contains(details.Error, reason) || details.Error == "" || strings.Contains(details.Error, "127.0.0.1") {
		f.t.Errorf("details %+v", details)
	}
	if log := f.log.String(); !strings.Contains(log, "The service of a routed function has failed") || strings.Contains(log, "panic") {
		f.t.Errorf("the log is %s", log)
	}
}

func TestNoFailureLeavesALockBehind(t *testing.T) {
	for name, test := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(w http.ResponseWriter, r *http.Request) { test.answer(t, w, r) })
			timeout := time.Minute
			// The service is called by then. If the call may still run, the lock is held until then, and is looked at before.
			if test.kind == forward.TimedOut || test.mayRun {
				timeout = 3 * time.Second
			}
			f := newFixtureWith(t, routingTo(t, s.URL, timeout, nil))
			got := f.post(envelopeWith("r.f", "", locked(`{"key":"k",`+ttl+`}`)))
			f.wantFailure(got, s.Listener.Addr().String(), test.kind, test.reason, test.mayRun, test.status)
			if !strings.Contains(got.body, `"acquired":true`) || strings.Contains(got.body, "lock-lost") {
				t.Errorf("entries in %s", got.body)
			}
			if test.mayRun {
				f.wantHeld("lock:r.f:k")
				f.Drain(t.Context())
			}
			f.wantHeld()

			f.log.Reset()
			got = f.post(envelopeWith("r.f", "", ""))
			f.wantFailure(got, s.Listener.Addr().String(), test.kind, test.reason, test.mayRun, test.status)
		})
	}
}

func TestServicesThatCannotBeReachedLeaveNoLock(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	untrusted := httptest.NewTLSServer(says(`"result":1`))
	t.Cleanup(untrusted.Close)
	for reason, url := range map[string]string{
		"connection refused":                  closed.URL,
		"the certificate is not trusted":      untrusted.URL,
		"the host name could not be resolved": "http://unknown.invalid:8080",
		"no connection":                       strings.Replace(closed.URL, "http:", "https:", 1) + "x",
	} {
		if reason == "no connection" {
			url = strings.Replace(newService(t, says(`"result":1`)).URL, "http:", "https:", 1)
		}
		f := newFixtureWith(t, routingTo(t, url, time.Minute, nil))
		got := f.post(envelopeWith("r.f", "", locked(`{"key":"k",`+ttl+`}`)))
		_, host, _ := strings.Cut(url, "//")
		f.wantFailure(got, host, forward.Unreachable, reason, false, 0)
		f.wantHeld()
	}
}
