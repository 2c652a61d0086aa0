package ui_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
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

func TestTheLifeOfALock(t *testing.T) {
	f := newFacade(t, nil)
	f.guards["billing:report"] = []v1alpha1.Guard{{Group: "apps", Resource: "deployments", Name: "billing"}}
	s := open(t, f.url())
	s.shows(".empty", "No lock is held.")
	s.shows(".link", "Live")

	held := f.hold("shop", "billing:report", "system:serviceaccount:shop:worker", 10*time.Second, because("nightly"), standingFor("Pod", "worker-1"))
	s.shows(".lock .key", "billing:report")
	s.shows(".lock .holder", "worker in shop")
	s.shows(".lock .holder", "Pod worker-1 · nightly")
	s.shows(".lock .tag", "guards 1")
	s.shows(".activity li.acquired", "billing:report")

	// The bar has run down a part, and a renewal fills it.
	const width = `new DOMMatrix(getComputedStyle(document.querySelector(".lock .bar span")).transform).a`
	s.await(width + " < 0.9 && " + width + " > 0.3")
	f.renew(held, 10*time.Second)
	s.await(width + " > 0.93")

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

// What a user sees of an expiry, measured by the page's own clock.
func TestAnExpiryIsOnTheScreenAtOnce(t *testing.T) {
	const latest = 250 * time.Millisecond
	f := newFacade(t, nil)
	s := open(t, f.url())
	s.shows(".link", "Live")
	evaluate[bool](s, `(() => {
		window.seen = {};
		const look = () => {
			for (const row of document.querySelectorAll(".lock.over")) if (row.querySelector(".expired")) window.seen[row.dataset.key] ??= Date.now();
			requestAnimationFrame(look);
		};
		look();
		return true;
	})()`)
	var delays []time.Duration
	for i := range 10 {
		key := fmt.Sprintf("brief:%d", i)
		held := f.hold("shop", key, "alice", time.Duration(400+37*i)*time.Millisecond)
		s.await("window.seen[" + quote(key) + "]")
		at := time.UnixMilli(int64(evaluate[float64](s, "window.seen["+quote(key)+"]")))
		delays = append(delays, at.Sub(held.Spec.ExpireTime.Time))
	}
	slices.Sort(delays)
	t.Logf("an expiry is on the screen after %v (median), %v (longest of %d)", delays[len(delays)/2], delays[len(delays)-1], len(delays))
	// Milliseconds are cut off.
	if delays[0] < -5*time.Millisecond || delays[len(delays)-1] > latest {
		t.Errorf("delays: %v", delays)
	}
}

func TestSearchFiltersAndAddresses(t *testing.T) {
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana"}})
	f.hold("shop", "a", "alice", time.Hour)
	f.hold("shop", "b", "bob", time.Hour, because("The Release"))
	f.hold("payments", "c/d e", "alice", 2*time.Hour)
	f.wait("payments", "c/d e", "bob")
	brief := f.hold("payments", "z", "carol", 10*time.Second)
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

// A thousand changes a second of ten thousand locks leave the page its frames.
func TestTenThousandLocks(t *testing.T) {
	const count, perSecond = 10_000, 1000
	f := newFacade(t, nil)
	held := make([]*v1alpha1.Lock, count)
	for i := range held {
		held[i] = f.hold("shop", fmt.Sprintf("key:%05d", i), fmt.Sprintf("holder-%d", i%97), time.Hour)
	}
	s := open(t, f.url())
	s.await(`document.querySelector(".list")?.ariaRowCount === "10001"`)
	s.await(`document.querySelectorAll(".lock").length < 60`)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		done := 0
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		begun := time.Now()
		for {
			select {
			case <-stop:
				stopped <- int(float64(done) / time.Since(begun).Seconds())
				return
			case <-ticker.C:
				for due := int(time.Since(begun).Seconds() * perSecond); done < due; done++ {
					each := held[done*7919%count]
					_, _ = f.Renew(t.Context(), each.Namespace, each.Spec.FullKey(), lock.Proof{Owner: each.Spec.Owner, Holder: each.Spec.Holder}, time.Duration(3600+done%60)*time.Second)
				}
			}
		}
	}()
	frames := evaluate[[]float64](s, `new Promise(done => {
		const times = [], begun = performance.now();
		let last = begun;
		const list = document.querySelector(".scroll");
		const look = now => {
			times.push(now - last);
			last = now;
			list.scrollTop += 23;
			if (now - begun < 5000) requestAnimationFrame(look); else done(times.slice(5));
		};
		requestAnimationFrame(look);
	})`)
	shownRate := evaluate[string](s, `document.querySelector(".stats .rate b").textContent`)
	close(stop)
	rate := <-stopped
	slices.Sort(frames)
	median, late := frames[len(frames)/2], frames[len(frames)*99/100]
	t.Logf("%d changes a second, shown as %s: %d frames in 5 s, median %.1f ms, 99%% %.1f ms, longest %.1f ms", rate, shownRate, len(frames), median, late, frames[len(frames)-1])
	if rate < perSecond*8/10 || median > 50 || late > 250 {
		t.Errorf("the page stutters")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams != 1 {
		t.Errorf("%d streams of the backend", f.streams)
	}
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

func TestTheKeyboard(t *testing.T) {
	f := newFacade(t, nil)
	for i := range 200 {
		f.hold("shop", fmt.Sprintf("key:%03d", i), "alice", time.Hour)
	}
	s := open(t, f.url())
	s.shows(".lock", "key:000")
	focused := `document.activeElement?.closest(".lock")?.dataset.key`
	evaluate[bool](s, `document.querySelector(".by").focus() || true`)
	s.do(chromedp.KeyEvent(kb.Tab + kb.Tab))
	s.await(focused + ` === "key:000"`)
	s.do(chromedp.KeyEvent(kb.ArrowDown + kb.ArrowDown))
	s.await(focused + ` === "key:002"`)
	s.do(chromedp.KeyEvent(kb.End))
	s.await(focused + ` === "key:199"`)
	s.do(chromedp.KeyEvent(kb.Enter))
	s.shows(".detail h2", "key:199")
	s.await(`document.activeElement?.tagName === "H2"`)
	s.do(chromedp.KeyEvent(kb.Escape))
	s.await(`!document.querySelector(".detail")`)
	s.quiet(f.address)
}

// axe must find nothing, in each state of the page.
func TestAccessibility(t *testing.T) {
	axe, err := os.ReadFile("../../../web/node_modules/axe-core/axe.min.js")
	switch {
	case errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "":
		t.Skip("axe-core is not installed, which takes npm: run make web/node_modules")
	case err != nil:
		t.Fatal(err)
	}
	f := newFacade(t, &viewers{users: map[string]string{"secret": "dana@example.com", "stranger": "sam"}, deny: map[string][]string{"sam": {"list", "watch"}}})
	populate(f)
	check := func(s *screen, state string) {
		t.Helper()
		found := evaluate[[]string](s, string(axe)+`; axe.run(document).then(r => [r.passes.length + " rules pass", ...r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 160) + " " + n.failureSummary).join(" | "))])`)
		if len(found) != 1 {
			t.Errorf("%s: %s", state, strings.Join(found, "\n"))
		} else {
			t.Logf("%s: %s", state, found[0])
		}
	}
	for _, preferred := range []string{"light", "dark"} {
		s := open(t, f.url(), scheme(preferred))
		s.shows(".refused", "Who are you?")
		check(s, preferred+", no token")
		signIn(s, "secret")
		s.shows(".lock", "billing:close")
		s.await(`document.querySelectorAll(".dots").length > 2`)
		check(s, preferred+", list")
		s.click(".viewer summary")
		check(s, preferred+", rights")
		s.click(".viewer summary")
		s.click(`.lock[data-key="billing:report"] a`)
		s.shows(".waiters li", "alice@example.com")
		check(s, preferred+", lock")
		s.do(chromedp.EmulateViewport(390, 844))
		check(s, preferred+", lock on a phone")
		if evaluate[bool](s, `document.documentElement.scrollWidth > innerWidth`) {
			t.Error("a phone has to scroll sideways")
		}
		s.click("button.close")
		s.shows(".lock", "billing:close")
		check(s, preferred+", list on a phone")
		if evaluate[bool](s, `document.documentElement.scrollWidth > innerWidth`) {
			t.Error("a phone has to scroll sideways")
		}
		s.do(chromedp.EmulateViewport(1440, 900))
		s.click(`.lock[data-key="deploy:checkout"] a`)
		s.click(".danger .force")
		s.shows("dialog", "by force?")
		check(s, preferred+", forced release")
		stranger := open(t, f.url()+"#/?namespace=shop", scheme(preferred))
		signIn(stranger, "stranger")
		stranger.shows(".refused", "You may not see this")
		check(stranger, preferred+", refused")
	}
}
