package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

func TestTheTokenStaysInMemory(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"very-secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url())
	signIn(s, "very-secret")
	s.shows(".lock", "a")
	s.click(".lock a")
	s.shows(".detail", "alice")
	kept := evaluate[string](s, `JSON.stringify([location.href, {...localStorage}, {...sessionStorage}, document.cookie, document.documentElement.outerHTML, history.state, performance.getEntries().map(e => e.name)])`)
	if strings.Contains(kept, "very-secret") {
		t.Errorf("the token is in %s", kept)
	}
	for _, path := range f.requested() {
		if strings.Contains(path, "very-secret") {
			t.Errorf("the token is in the address %s", path)
		}
	}
	s.do(chromedp.Reload())
	s.shows(".refused", "Who are you?")
	signIn(s, "very-secret")
	s.shows(".detail", "alice")
	s.click(".viewer summary")
	s.click(".viewer div button")
	s.shows(".refused", "Who are you?")
	s.quiet(f.address, "401")
}

// attacks are texts that try to become a script, an element or an address.
var attacks = []string{
	`<img src=x onerror="window.hit=1">`, `"><script>window.hit=1</script>`, `javascript:window.hit=1`,
	`'-alert(1)-'`, `</title><svg onload=window.hit=1>`, `{{constructor.constructor('window.hit=1')()}}`, `%3Cscript%3E`, `../../x?y#z`,
}

// Every text of a user that the page shows tries to become a script, an element or an address.
func TestTextsOfUsersStayTexts(t *testing.T) {
	f := newFacade(t, nil)
	for i, attack := range attacks {
		function := func(wanted *rules.Acquisition) {
			if i%2 == 1 {
				wanted.Scope, wanted.Function = v1alpha1.ScopeFunction, "f"+attack
			}
		}
		f.guards[attack] = []v1alpha1.Guard{{Resource: "deployments", Name: attack, Group: attack}}
		f.refs[attack] = &v1alpha1.HolderReference{APIVersion: attack, Kind: attack, Name: attack, UID: "u"}
		f.hold("shop", attack, "holder "+attack, time.Hour, because("reason "+attack), function)
		f.mu.Lock()
		scope, name := v1alpha1.ScopeGlobal, ""
		if i%2 == 1 {
			scope, name = v1alpha1.ScopeFunction, "f"+attack
		}
		f.waiters = append(f.waiters, lock.Waiter{
			Namespace: "shop", Scope: scope, Function: name, Key: attack, Place: 1, Holder: "waiter " + attack, Reason: attack, Since: time.Now(),
			HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: attack, UID: "u"}, Door: attack,
		})
		f.mu.Unlock()
	}
	s := open(t, f.url())
	s.await(fmt.Sprintf(`document.querySelectorAll(".lock").length === %d`, len(attacks)))
	for i, attack := range attacks {
		selector := fmt.Sprintf(`[...document.querySelectorAll(".lock")].find(e => e.dataset.key === %s).querySelector("a")`, quote(attack))
		if href := evaluate[string](s, selector+".href"); !strings.HasPrefix(href, f.url()+"#/namespaces/shop/locks/") {
			t.Errorf("%s leads to %s", attack, href)
		}
		evaluate[bool](s, selector+".click() || true")
		s.await(`document.querySelector(".detail h2")?.textContent === ` + quote(attack))
		s.shows(".facts", "holder "+attack)
		s.shows(".facts", "reason "+attack)
		s.shows(".waiters li", "waiter "+attack)
		s.await("document.title === " + quote(attack+" · Locks"))
		s.click(".danger .force")
		s.shows("dialog .outcome", "holder "+attack)
		s.enter("#reason", attack)
		s.do(chromedp.KeyEvent(kb.Escape))
		s.await(`!document.querySelector("dialog")`)
		evaluate[bool](s, fmt.Sprintf(`(() => { location.hash = "#/?q=" + encodeURIComponent(%s) + "&namespace=" + encodeURIComponent(%s) + "&holder=" + encodeURIComponent(%s); return true; })()`, quote(attack), quote(attack), quote(attack)))
		s.shows(".empty", "No lock fits.")
		evaluate[bool](s, `(() => { location.hash = "#/"; return true; })()`)
		s.await(fmt.Sprintf(`document.querySelectorAll(".lock").length === %d`, len(attacks)))
		if i == 0 {
			s.picture("attacks")
		}
	}
	s.isSafe()
	s.quiet(f.address)
}

// What the API would not let a lock be, an answer may tell all the same: selectors of guards, and grants that have ended.
func TestTextsOfEventsStayTexts(t *testing.T) {
	f := newFacade(t, nil)
	at := time.Now().UTC()
	stamp := func(after time.Duration) string { return at.Add(after).Format(time.RFC3339Nano) }
	var held, grants []any
	texts := append(slices.Clip(attacks), "\u202egnissim") // No key may have the last.
	for i, attack := range texts {
		lockOf := func(key string) map[string]any {
			return map[string]any{
				"namespace": "shop", "key": fmt.Sprint(key, i), "holder": "holder " + attack, "reason": attack, "fencing_token": 1,
				"guards":      []any{map[string]any{"resource": "configmaps", "selector": "selector " + attack}},
				"holder_ref":  map[string]any{"api_version": "v1", "kind": "kind " + attack, "name": attack, "uid": "u"},
				"acquired_at": stamp(-time.Minute), "renewed_at": stamp(-time.Minute), "expires_at": stamp(time.Hour),
			}
		}
		held = append(held, lockOf("held"))
		grants = append(grants, map[string]any{"event": "event " + attack, "ended_at": stamp(0), "lock": lockOf("past")})
	}
	sync, err := json.Marshal(map[string]any{"now": stamp(0), "locks": held})
	if err != nil {
		t.Fatal(err)
	}
	past, err := json.Marshal(map[string]any{"since": stamp(-time.Hour), "grants": grants})
	if err != nil {
		t.Fatal(err)
	}
	address := behindProxy(t, f, passOn, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/feed" {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: sync\ndata: %s\n\nevent: past\ndata: %s\n\n", sync, past)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	s := open(t, "http://"+address+"/ui/")
	for i, attack := range texts {
		evaluate[bool](s, fmt.Sprintf(`(location.hash = "#/namespaces/shop/locks/held%d", true)`, i))
		s.shows(".facts li", "configmaps with selector "+attack)
		evaluate[bool](s, fmt.Sprintf(`(location.hash = "#/namespaces/shop/locks/past%d", true)`, i))
		s.shows(".timeline li", "holder "+attack)
		s.shows(".timeline li", "kind "+attack+" "+attack)
		s.shows(".timeline li", "event "+attack+" after")
	}
	s.isSafe()
	s.quiet(address)
}

// isSafe fails if a text of a user has become anything else.
func (s *screen) isSafe() {
	s.t.Helper()
	if evaluate[bool](s, `!!window.hit || !!document.querySelector("#page script, #page iframe, #page [onerror], #page [onload], #page img:not(.brand img)")`) {
		s.t.Error("a text has become more than a text")
	}
}

func TestTheBrowserRunsNothingThatIsInline(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, f.url())
	s.shows(".link", "Live")
	evaluate[bool](s, `(async () => {
		const blocked = window.blocked = [];
		document.addEventListener("securitypolicyviolation", event => blocked.push(event.effectiveDirective));
		const script = document.createElement("script");
		try { script.text = "window.hit = 1"; document.body.append(script); } catch { blocked.push("trusted-types"); }
		try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch { blocked.push("markup"); }
		const style = document.createElement("style"); style.textContent = "body { display: none }"; document.body.append(style);
		try { await fetch("http://127.0.0.1:1/"); } catch {}
		const frame = document.createElement("iframe"); frame.src = "https://example.com/"; document.body.append(frame);
		return true;
	})()`)
	for _, each := range []string{"markup", "style-src-elem", "connect-src", "frame-src"} {
		s.await(`blocked.includes(` + quote(each) + `)`)
	}
	if evaluate[bool](s, "!!window.hit") {
		t.Error("the script has run")
	}
}
