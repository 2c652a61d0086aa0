package ui_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// asked remembers when requests were sent.
type asked struct {
	mu    sync.Mutex
	times []time.Time
}

func (a *asked) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
}

// pauses returns how long it took until each request but the first, of so many, once these were sent.
func (a *asked) pauses(t *testing.T, count int) []time.Duration {
	t.Helper()
	for begun := time.Now(); ; pause(t, 20*time.Millisecond) {
		a.mu.Lock()
		times := slices.Clone(a.times)
		a.mu.Unlock()
		if len(times) >= count {
			between := make([]time.Duration, 0, count-1)
			for i := range count - 1 {
				between = append(between, times[i+1].Sub(times[i]))
			}
			return between
		}
		if time.Since(begun) > patience {
			t.Fatalf("%d requests", len(times))
		}
	}
}

func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "urn:lock-operator:problem:x", "title": "x", "status": status, "detail": detail})
}

func passOn(http.Header) {}

// The page asks a busy service again when that wants it, and tells what it has said.
func TestABusyService(t *testing.T) {
	f := newFacade(t, nil)
	var requests asked
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/rights" {
			return false
		}
		requests.note()
		w.Header().Set("Retry-After", "2")
		problem(w, http.StatusTooManyRequests, "You call too often")
		return true
	})
	s := open(t, "http://"+address+"/ui/")
	s.shows(".link", "You call too often, trying again in")
	for _, pause := range requests.pauses(t, 3) {
		if pause < 1900*time.Millisecond {
			t.Errorf("asked again after %v", pause)
		}
	}
	s.quiet(address, "429")
}

// A stream that ends before it has told the state is a failure as well, so the pauses grow.
func TestAStreamThatTellsNoState(t *testing.T) {
	f := newFacade(t, nil)
	var requests asked
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/feed" {
			return false
		}
		requests.note()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: sync\ndata: {\"locks\":[")
		return true
	})
	s := open(t, "http://"+address+"/ui/")
	s.shows(".link", "Connection lost")
	if pauses := requests.pauses(t, 4); pauses[2] < 1400*time.Millisecond {
		t.Errorf("asked again after %v", pauses)
	}
	s.quiet(address)
}

// A proxy whose session has ended answers for the service, and a reload of the page leads to its login.
func TestAProxyWhoseSessionHasEnded(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"sends elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
		"answers itself": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>Sign in</h1>")
		},
		"knows no one":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Sign in", http.StatusUnauthorized) },
		"wants a password":   refuseWith(http.StatusUnauthorized, `Basic realm="proxy"`),
		"refuses the viewer": refuseWith(http.StatusForbidden, ""),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacade(t, nil)
			f.hold("shop", "a", "alice", time.Hour)
			var mu sync.Mutex
			hasEnded := false
			address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if hasEnded && strings.HasPrefix(r.URL.Path, "/v1/") {
					answer(w, r)
					return true
				}
				return false
			})
			s := open(t, "http://"+address+"/ui/")
			s.shows(".lock", "a")
			mu.Lock()
			hasEnded = true
			mu.Unlock()
			f.stop()
			s.shows(".refused", "Sign in again")
			f.start()
			mu.Lock()
			hasEnded = false
			mu.Unlock()
			loaded := chromedp.Events(s.tab, page.LoadEventFired)
			s.click(".refused .main")
			for _, err := range loaded { // What is evaluated before would end with the page.
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			s.shows(".lock", "a")
			s.quiet(address, "ERR_", "401", "403")
		})
	}
}

// refuseWith answers as something in front of the service does.
func refuseWith(status int, challenge string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		http.Error(w, "Sign in", status)
	}
}

// A proxy that looks at the token itself can be given one.
func TestAProxyThatWantsAToken(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "a", "alice", time.Hour)
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		isRefused := strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer secret"
		if isRefused {
			refuseWith(http.StatusUnauthorized, `Bearer realm="proxy"`)(w, r)
		}
		return isRefused
	})
	s := open(t, "http://"+address+"/ui/")
	s.shows(".refused", "Who are you?")
	signIn(s, "secret")
	s.shows(".lock", "a")
	s.quiet(address, "401")
}

// What a token cannot have comes from copying. The page tells that at once: it could not even send it.
func TestATokenWithOtherCharacters(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"very-secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url())
	s.shows(".refused", "Who are you?")
	for _, wrong := range []string{"very\u200bsecret", "\u201cvery-secret\u201d", "very secret"} {
		evaluate[bool](s, `(() => {
			const e = document.querySelector("#token");
			e.value = `+quote(wrong)+`;
			return e.dispatchEvent(new Event("input", {bubbles: true}));
		})()`)
		s.shows(".refused .bad", "This is no token")
		s.await(`document.querySelector("button.main").disabled`)
	}
	evaluate[bool](s, `(() => { const e = document.querySelector("#token"); e.value = ""; return e.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	s.hides(".refused", "This is no token")
	signIn(s, "very-secret")
	s.shows(".lock", "a")
	s.quiet(f.address, "401")
}

// What ended while the page was not connected did not end when it came back.
func TestWhatEndsWhileThePageIsNotConnected(t *testing.T) {
	f := newFacade(t, nil)
	ended, passed := f.hold("shop", "ended", "alice", time.Hour), f.hold("shop", "passed", "alice", time.Hour)
	f.hold("shop", "kept", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/ended")
	s.shows(".facts", "alice")
	f.stop()
	s.shows(".link", "Connection lost")
	f.release(ended)
	f.release(passed)
	f.hold("shop", "passed", "bob", time.Hour)
	f.start()
	s.shows(".link", "Live")
	s.shows(".timeline li", "ended while the page was not connected")
	for key, want := range map[string]string{"passed": "ended while the page was not connected", "kept": "holds it"} {
		evaluate[bool](s, `(location.hash = "#/namespaces/shop/locks/`+key+`", true)`)
		s.shows(".detail h2", key)
		s.shows(".timeline li:last-child", want)
	}
	// What is seen is told as ever.
	f.release(f.hold("shop", "seen", "alice", time.Hour))
	evaluate[bool](s, `(location.hash = "#/namespaces/shop/locks/seen", true)`)
	s.shows(".timeline li", "released after")
	s.quiet(f.address, "ERR_")
}

// What the service tells, after a new connection, of the end of a grant goes for the state and for the timeline.
func TestTheServiceTellsWhatHasEndedMeanwhile(t *testing.T) {
	f := newFacade(t, nil)
	cut := make(chan struct{})
	connections := 0
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/feed" {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		connections++
		now := time.Now().UTC()
		at := func(ago time.Duration) string { return now.Add(-ago).Format("2006-01-02T15:04:05.000000Z") }
		held := `{"namespace":"shop","key":"a","holder":"alice","acquired_at":"2026-03-15T10:30:00.000000Z","renewed_at":"2026-03-15T10:30:00.000000Z","expires_at":"` + at(-time.Hour) + `"}`
		end := r.Context().Done()
		if connections == 1 {
			_, _ = io.WriteString(w, "event: sync\ndata: {\"now\":\""+at(0)+"\",\"locks\":["+held+"]}\n\n")
			end = cut
		} else { // In one piece, so that the page draws no state between them.
			_, _ = io.WriteString(w, "event: sync\ndata: {\"now\":\""+at(0)+"\",\"locks\":[]}\n\n"+
				"event: past\ndata: {\"since\":\""+at(time.Hour)+"\",\"grants\":[{\"event\":\"released\",\"ended_at\":\""+at(time.Minute)+"\",\"lock\":"+held+"}]}\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		<-end
		return true
	})
	s := open(t, "http://"+address+"/ui/#/namespaces/shop/locks/a")
	s.shows(".facts", "alice")
	// The end is shown for a moment only.
	evaluate[bool](s, `(() => {
		window.states = new Set();
		const look = () => { window.states.add(document.querySelector(".state").textContent); requestAnimationFrame(look); };
		look();
		return true;
	})()`)
	close(cut)
	s.shows(".timeline li", "released after")
	s.shows(".state", "No caller holds this lock.")
	s.await(`[...window.states].some(e => e.includes("released 1m"))`)
	if told := evaluate[[]string](s, `[...window.states].filter(e => e.includes("not connected") || e.includes("just now"))`); len(told) != 0 {
		t.Errorf("the state says %q", told)
	}
	s.quiet(address)
}

// A viewer who is connected to another namespace is shown nothing of the former one.
func TestAnotherNamespaceBeginsAnew(t *testing.T) {
	const account = "system:serviceaccount:shop:web"
	f := newFacade(t, &viewers{users: map[string]string{"secret": account}, deny: map[string][]string{account: {"list ", "watch "}}})
	f.hold("shop", "own", "alice", time.Hour)
	f.hold("payments", "theirs", "alice", time.Hour)
	s := open(t, f.url()+"#/?namespace=payments")
	signIn(s, "secret")
	s.shows(".lock", "theirs")
	evaluate[bool](s, `(() => { const e = document.querySelector("select"); e.value = ""; return e.dispatchEvent(new Event("change", {bubbles: true})); })()`)
	s.await(`location.hash === "#/"`)
	f.stop()
	s.shows(".link", "Connection lost")
	f.start()
	if first := evaluate[[]string](s, `new Promise(done => {
		const look = () => {
			const keys = [...document.querySelectorAll(".lock")].map(e => e.dataset.key);
			if (keys.includes("own")) done(keys); else requestAnimationFrame(look);
		};
		look();
	})`); !slices.Equal(first, []string{"own"}) {
		t.Errorf("shown are %q", first)
	}
	s.quiet(f.address, "401", "ERR_")
}
