package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

func TestTheLifeOfALock(t *testing.T) {
	f := newFacade(t, nil)
	f.guards["billing:report"] = []v1alpha1.Guard{{Group: "apps", Resource: "deployments", Name: "billing"}}
	s := open(t, f.url())
	s.shows(".empty", "No lock is held.")
	s.shows(".link", "Live")

	held := f.holdFor(48*time.Minute, "shop", "billing:report", "system:serviceaccount:shop:worker", time.Hour, because("nightly"), standingFor("Pod", "worker-1"))
	s.shows(".lock .key", "billing:report")
	s.shows(".lock .holder", "worker in shop")
	s.shows(".lock .holder", "Pod worker-1 · nightly")
	s.shows(".lock .tag", "guards 1")
	s.shows(".activity li.acquired", "billing:report")

	// The bar has run down a part, goes on, and is filled by a renewal.
	const width = `new DOMMatrix(getComputedStyle(document.querySelector(".lock .bar span")).transform).a`
	s.await(width + " < 0.9 && " + width + " > 0.3")
	before := evaluate[float64](s, width)
	s.await(fmt.Sprint(width, " < ", before))
	f.renew(held, time.Hour)
	s.await(width + " > 0.93") // For four minutes.

	f.wait("shop", "billing:report", "alice@example.com", "bob@example.com", "carol@example.com")
	s.await(`[...document.querySelectorAll(".lock .dots i")].map(e => e.textContent).join() === "1,2,3"`)
	s.shows(".stats", "3in line")

	s.click(".lock a")
	s.shows(".detail h2", "billing:report")
	s.shows(".detail .facts", "apps")
	s.shows(".detail .waiters li", "bob@example.com")
	if got := evaluate[[]string](s, `[...document.querySelectorAll(".waiters li")].map(e => e.querySelector("b").textContent + e.querySelector(".data").textContent)`); !slices.Equal(got, []string{"1alice@example.com", "2bob@example.com", "3carol@example.com"}) {
		t.Errorf("the line: %v", got)
	}
	s.shows(".commands", "kubectl lock who billing:report -n shop")

	f.release(held)
	f.leave("billing:report", 1)
	next := f.hold("shop", "billing:report", "alice@example.com", time.Minute)
	s.shows(".facts", "alice@example.com")
	s.shows(".timeline li", "released after")
	s.shows(".timeline li", "holds it")
	f.release(next)
	s.shows(".state", "Free")
	s.await(`!document.querySelector(".lock")`)
	s.do(chromedp.KeyEvent(kb.Escape))
	s.hides("h2", "billing:report")
	s.quiet(f.address)
}

func TestSearchFiltersAndAddresses(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	f.hold("shop", "b", "bob", time.Hour, because("The Release"))
	f.hold("payments", "c/d e", "alice", 2*time.Hour)
	f.wait("payments", "c/d e", "bob")
	// In eight seconds a fifth of its ttl is left: twelve minutes.
	brief := f.holdFor(12*time.Minute+8*time.Second, "payments", "z", "carol", time.Hour)
	s := open(t, f.url())
	signIn(s, "secret")
	want := func(keys ...string) {
		t.Helper()
		text, _ := json.Marshal(keys)
		s.await(`JSON.stringify([...document.querySelectorAll(".lock:not(.over)")].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(e => e.dataset.key)) === ` + quote(string(text)))
	}
	want("a", "b", "c/d e", "z")
	evaluate[bool](s, `document.body.firstElementChild.firstElementChild.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true})) || true`)
	s.await(`document.activeElement.id === "search"`)
	s.do(chromedp.KeyEvent("release"))
	want("b")
	s.await(`location.hash === "#/?q=release"`)
	evaluate[bool](s, `(() => { const e = document.querySelector("#search"); e.value = ""; return e.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	want("a", "b", "c/d e", "z")
	s.click(".stats button:nth-of-type(1)")
	want("c/d e")
	s.click(".stats button:nth-of-type(1)")
	s.click(".stats button:nth-of-type(2)") // Expiring: a fifth of the ttl is left.
	want("z")
	f.renew(brief, time.Hour)
	s.shows(".empty", "No lock fits.")
	s.click(".empty button")
	evaluate[bool](s, `(() => { const e = document.querySelectorAll("select")[0]; e.value = "payments"; return e.dispatchEvent(new Event("change", {bubbles: true})); })()`)
	want("c/d e", "z")
	s.enter(".by", "alice")
	want("c/d e")
	evaluate[bool](s, `(() => { const e = document.querySelectorAll("select")[1]; e.value = "expiry"; return e.dispatchEvent(new Event("change", {bubbles: true})); })()`)
	s.await(`location.hash === "#/?namespace=payments&holder=alice&sort=expiry"`)
	s.click(".lock a")
	s.shows(".detail h2", "c/d e")
	s.await(`location.hash.startsWith("#/namespaces/payments/locks/c%2Fd%20e?")`)

	// The address of a lock opens it elsewhere.
	other := open(t, f.url()+"#/namespaces/payments/locks/c%2Fd%20e")
	signIn(other, "secret")
	other.shows(".detail h2", "c/d e")
	other.shows(".detail .waiters", "bob")
	s.do(chromedp.NavigateBack())
	s.hides("h2", "c/d e")
	s.quiet(f.address, "401")
}

func signIn(s *screen, token string) {
	s.t.Helper()
	s.enter("#token", token)
	s.click("button.main")
	s.await(`!document.querySelector("#token")`)
}

func TestForcedRelease(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana"}})
	held := f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob")
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	signIn(s, "secret")
	s.shows(".detail", "alice")
	s.shows(".waiters li", "bob") // What is below moves when it comes.
	s.click(".danger .force")
	s.shows("dialog .outcome", "alice loses the lock at once")
	s.shows("dialog .outcome", "bob gets the lock next")
	s.shows("dialog .outcome", "Your name, dana, and the reason go on record")
	s.await(`document.querySelector("dialog .force").disabled`) // There is no reason yet.
	s.enter("#reason", "it's stuck")
	s.shows("dialog code", `kubectl lock free a -n shop --reason 'it'\''s stuck'`)

	// Another holder than the one that was decided on is not hit.
	f.release(held)
	f.hold("shop", "a", "bob", time.Hour)
	s.shows("dialog [role=alert]", "Meanwhile bob holds the lock")
	s.await(`document.querySelector("dialog .force").disabled`)
	s.click("dialog [role=alert] button")
	s.shows("dialog .outcome", "bob loses the lock at once")
	s.click("dialog .force")
	s.shows(".notice", "Done")
	s.shows(".state", "Free")
	if left := f.All(); len(left) != 0 {
		t.Errorf("%d locks are left", len(left))
	}
	s.quiet(f.address, "401")
}

// What the page shows may be old: then another holder than the one that was decided on is not hit.
func TestAForcedReleaseOfAnOldView(t *testing.T) {
	f := newFacade(t, nil)
	held := f.hold("shop", "a", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".detail", "alice")
	s.click(".danger .force")
	s.enter("#reason", "it is stuck")
	s.await(`!document.querySelector("dialog .force").disabled`)
	f.stop()
	s.shows("dialog [role=alert]", "The connection is lost")
	s.await(`document.querySelector("dialog .force").disabled`)
	f.start()
	s.await(`!document.querySelector("dialog .force").disabled`)

	f.mu.Lock()
	f.isStuck = true
	f.mu.Unlock()
	f.release(held)
	f.hold("shop", "a", "bob", time.Hour)
	s.shows("dialog .outcome", "alice loses the lock")
	s.click("dialog .force")
	s.shows("dialog [role=alert]", "another holder has got the lock. Nothing was done.")
	if left := f.All(); len(left) != 1 || left[0].Spec.Holder != "bob" {
		t.Errorf("left: %v", left)
	}
}

// Who may follow one lock alone is told nothing of lines, and reads who waits if it may.
func TestAViewerOfOneLock(t *testing.T) {
	all, name := []string{"get", "list", "watch", "create", "force-release"}, v1alpha1.FullKeyOf("a").ObjectName()
	f := newFacade(t, &viewers{
		users: map[string]string{"reader": "rita", "watcher": "walt", "lister": "lisa"},
		deny:  map[string][]string{"rita": all, "walt": all, "lisa": {"get"}},
		allow: map[string][]string{
			"rita": {"get shop " + name, "watch shop " + name, "force-release shop " + name},
			"walt": {"watch shop " + name, "force-release shop " + name},
		},
	})
	f.hold("shop", "a", "alice", time.Hour)
	f.wait("shop", "a", "bob", "carol")

	reader := open(t, f.url()+"#/namespaces/shop/locks/a")
	signIn(reader, "reader")
	reader.shows(".waiters li", "bob")
	reader.shows(".waiters h3", "2")
	reader.click(".danger .force")
	reader.shows("dialog .outcome", "bob gets the lock next, ahead of 1 more")

	f.mu.Lock()
	f.isUncounted = true
	f.mu.Unlock()
	for _, token := range []string{"watcher", "lister"} { // One has no lines, and the other's are not known.
		s := open(t, f.url()+"#/namespaces/shop/locks/a")
		signIn(s, token)
		s.shows(".waiters", "It is not known who waits")
		s.click(".danger .force")
		s.shows("dialog .outcome", "It is not known whether callers wait")
	}
}

// The commands to copy are about the lock that is shown, whatever its key.
func TestCommandsOfAnyKey(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "--reason", "alice", time.Hour)
	f.hold("shop", `a,b=c\d`, "alice", time.Hour, func(wanted *rules.Acquisition) {
		wanted.Scope, wanted.Function = v1alpha1.ScopeFunction, "f"
	})
	s := open(t, f.url()+"#/namespaces/shop/locks/--reason")
	s.shows(".commands code", "kubectl lock who -n shop -- --reason")
	s.shows(".commands code", "kubectl lock free -n shop --dry-run -- --reason")
	s.click(".danger .force")
	s.enter("#reason", "x")
	s.shows("dialog code", "kubectl lock free -n shop --reason x -- --reason")
	s.do(chromedp.KeyEvent(kb.Escape))
	s.do(chromedp.Navigate(f.url() + "#/namespaces/shop/locks/a%2Cb%3Dc%5Cd?function=f"))
	s.shows(".commands code", `--field-selector 'spec.key=a\,b\=c\\d'`)
}

func TestAViewerWithoutRights(t *testing.T) {
	f := newFacade(t, &viewers{
		users: map[string]string{"reader": "rita", "stranger": "sam", "neighbour": "system:serviceaccount:shop:web"},
		deny: map[string][]string{
			"rita": {"force-release"}, "sam": {"list", "watch"},
			"system:serviceaccount:shop:web": {"list ", "watch ", "force-release", "get"},
		},
	})
	f.hold("shop", "a", "alice", time.Hour)
	f.hold("payments", "hidden", "alice", time.Hour)
	f.wait("shop", "a", "bob")

	reader := open(t, f.url()+"#/namespaces/shop/locks/a")
	signIn(reader, "reader")
	reader.shows(".danger", "You may not: it takes the verb force-release")
	reader.await(`!document.querySelector(".danger button")`)
	reader.click(".viewer summary")
	reader.shows(".verbs .no", "take one from its holder")
	reader.shows(".verbs .yes", "watch them")

	stranger := open(t, f.url()+"#/?namespace=shop")
	signIn(stranger, "stranger")
	stranger.shows(".refused", "You may not see this")
	stranger.shows(".refused", "list")
	stranger.await(`!document.body.textContent.includes("alice")`)
	stranger.click(".refused .buttons button:nth-of-type(2)")
	stranger.shows(".refused", "Who are you?")
	stranger.enter("#token", "wrong")
	stranger.click("button.main")
	stranger.shows(".refused", "did not accept this token")

	// A right in one namespace shows that one.
	neighbour := open(t, f.url())
	signIn(neighbour, "neighbour")
	neighbour.shows(".scope", "shop")
	neighbour.shows(".lock", "a")
	neighbour.click(".lock a")
	neighbour.shows(".detail", "alice")
	neighbour.await(`!document.body.textContent.includes("hidden")`)
	neighbour.await(`document.querySelectorAll(".waiters ol").length === 0`) // It takes get to read who waits.
	for _, s := range []*screen{reader, stranger, neighbour} {
		s.quiet(f.address, "401", "403")
	}
}

func TestThePageGoesOnAfterARestart(t *testing.T) {
	f := newFacade(t, nil)
	f.hold("shop", "kept", "alice", time.Hour)
	ended := f.hold("shop", "ended", "alice", time.Hour)
	s := open(t, f.url()+"#/namespaces/shop/locks/kept")
	s.shows(".lock", "ended")
	f.stop()
	s.shows(".link", "Connection lost")
	f.release(ended)
	f.hold("shop", "new", "bob", time.Hour)
	f.start()
	s.shows(".link", "Live")
	s.shows(".lock", "new")
	s.await(`![...document.querySelectorAll(".lock")].some(e => e.dataset.key === "ended")`)
	s.shows(".detail h2", "kept")
	f.hold("shop", "later", "carol", time.Hour)
	s.shows(".lock", "later")
}

// A hundred viewers are one stream of the backend.
func TestAHundredViewersAreOneStream(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, f.url())
	s.shows(".link", "Live")
	for range 99 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.address+"/v1/feed", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	f.hold("shop", "a", "alice", time.Hour)
	s.shows(".lock", "a")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams != 1 {
		t.Errorf("%d streams of the backend", f.streams)
	}
}
