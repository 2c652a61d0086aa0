package forrst_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func limitBodies(bytes int) func(*testfacade.Settings) {
	return func(config *testfacade.Settings) { config.Server.Limits.BodyBytes = bytes }
}

// wantNoRoom expects that a body was refused for its size beside those of others.
func (f *fixture) wantNoRoom(got answer) {
	f.t.Helper()
	f.wantProblems(got, 503, "UNAVAILABLE")
	if details := string(got.Errors[0].Details); got.ID != nil || got.header.Get("Retry-After") != "1" || details != `{"retry_after":{"value":1,"unit":"second"},"nothing_done":true}` {
		f.t.Errorf("headers %v, %s", got.header, got.body)
	}
}

func TestBodiesOfAllCallersAreBounded(t *testing.T) {
	f := newFixtureWith(t, limitBodies(1000))
	small, large := envelopeWith(ping, "", ""), envelopeWith(ping, arguments(`"x":"`+strings.Repeat("x", 1000)+`"`), "")
	for range 3 {
		f.wantNoRoom(f.post(large))
		if got := f.post(small); got.status != 200 {
			t.Errorf("another call: %s", got.body)
		}
	}

	// One body that is still being read.
	reader, writer := io.Pipe()
	answers := make(chan answer, 1)
	go func() {
		answers <- f.serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, reader))
	}()
	half := small + strings.Repeat(" ", 950-len(small))
	if _, err := io.WriteString(writer, half); err != nil {
		t.Fatal(err)
	}
	// The next write begins when the first was counted.
	if _, err := io.WriteString(writer, " "); err != nil {
		t.Fatal(err)
	}
	f.wantNoRoom(f.post(small))
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.status != 200 {
		t.Errorf("the slow one: %s", got.body)
	}
	if got := f.post(small); got.status != 200 {
		t.Errorf("there is room again: %s", got.body)
	}
}

// The answer repeats what was sent, which a call keeps for as long as it waits, and until a slow caller has
// read it.
func TestLargeRequestsKeepTheirRoomUntilTheyAreAnswered(t *testing.T) {
	const size = 20_000
	large := strings.Repeat("x", size)
	wait := `"key":"k","block":{"value":5}`
	for name, body := range map[string]string{
		"a large id":     strings.Replace(envelopeWith(wire.Acquire, arguments(wait), ""), `"a-1"`, `"`+large+`"`, 1),
		"a large block":  envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":5,"x":"`+large+`"}`), ""),
		"large options":  envelopeWith(wire.Acquire, arguments(wait), `{"urn":"urn:forrst:ext:deadline","options":{"value":60,"x":"`+large+`"}}`),
		"another member": envelopeWith(wire.Acquire, arguments(wait+`,"x":"`+large+`"`), ""),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.hold("k", "alice", time.Hour)
			began := f.letCallsWait()
			answered := make(chan answer, 1)
			go func() { answered <- f.post(body) }()
			<-began
			if taken := f.Limiter().BodyBytes(); taken < size {
				t.Errorf("%d bytes are counted while it waits", taken)
			}
			if err := f.locks.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "alice"}); err != nil {
				t.Fatal(err)
			}
			if got := <-answered; got.status != 200 {
				t.Errorf("the call that waited: %.1000s", got.body)
			}
			if left := f.Limiter().BodyBytes(); left != 0 {
				t.Errorf("%d bytes are still counted", left)
			}
		})
	}
	t.Run("a key that its answer repeats", func(t *testing.T) {
		f := newFixture(t)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(wire.Status, arguments(`"key":"`+large+`"`), "")))
		var whileSent int64
		f.ServeHTTP(&writing{httptest.NewRecorder(), func() { whileSent = f.Limiter().BodyBytes() }}, request)
		if whileSent < size {
			t.Errorf("%d bytes are counted while the answer is sent", whileSent)
		}
	})
}

func TestAnswersOfServicesTakeRoomBeforeTheyAreRead(t *testing.T) {
	const length = 1 << 20
	text := `"result":"` + strings.Repeat("x", length) + `"`
	for name, flush := range map[string]func(http.ResponseWriter){
		"with its length":    func(w http.ResponseWriter) { w.Header().Set("Content-Length", strconv.Itoa(length+100)) },
		"without its length": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				padding := length + 100 - len(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1",`+text+`}`)
				flush(w)
				says(text+strings.Repeat(" ", padding))(w, r)
			})
			call := func(bytes int) (*fixture, answer) {
				f := newFixtureWith(t, func(config *testfacade.Settings) {
					routingTo(t, s.URL, time.Minute, nil)(config)
					limitBodies(bytes)(config)
				})
				got := f.post(envelopeWith("r.f", "", locked(`{"key":"k","scope":"global",`+ttl+`}`)))
				return f, got
			}
			f, got := call(length)
			f.wantProblems(got, 502, "DEPENDENCY_ERROR")
			if !strings.Contains(string(got.Errors[0].Details), `"kind":"no_room"`) {
				t.Errorf("details %s", got.Errors[0].Details)
			}
			f.wantHeld()
			if left := f.Limiter().BodyBytes(); left != 0 {
				t.Errorf("%d bytes are still taken", left)
			}
			f, got = call(2 * length)
			if got.status != 200 || f.Limiter().BodyBytes() != 0 {
				t.Errorf("with room: status %d, %d bytes are still taken", got.status, f.Limiter().BodyBytes())
			}
		})
	}
}

// writing tells when an answer is written.
type writing struct {
	*httptest.ResponseRecorder

	began func()
}

func (w *writing) Write(body []byte) (int, error) {
	w.began()
	return w.ResponseRecorder.Write(body)
}
